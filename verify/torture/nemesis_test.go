package torture

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/traffic"
)

// puppet notes what is done to it, and when.
type puppet struct {
	name string
	did  *[]string
	from time.Time
}

func (p *puppet) note(what string) error {
	*p.did = append(*p.did, fmt.Sprint(time.Since(p.from), " ", p.name, " ", what))
	return nil
}
func (p *puppet) kill() error                  { return p.note("kill") }
func (p *puppet) stop() error                  { return p.note("stop") }
func (p *puppet) resume() error                { return p.note("resume") }
func (p *puppet) between() []*faultproxy.Proxy { return nil }

// perform runs a nemesis for a minute of virtual time.
func perform(t *testing.T, seed uint64, names string) (did []string) {
	rec, err := traffic.NewRecorder(filepath.Join(t.TempDir(), "n.jsonl"), "")
	steps.Must(t, err)
	defer rec.Close()
	synctest.Test(t, func(t *testing.T) {
		w := &world{ttl: time.Second, rec: rec}
		for i := range 3 {
			w.victims = append(w.victims, &puppet{fmt.Sprint("w", i), &did, time.Now()})
		}
		faults, _, err := w.find(names)
		steps.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		steps.Must(t, w.nemesis(ctx, faults, seed))
	})
	return did
}

func TestASeedIsASchedule(t *testing.T) {
	one := perform(t, 1, "kill,pause,blink")
	if len(one) < 20 {
		t.Errorf("only %d things were done in a minute: %v", len(one), one)
	}
	if again := perform(t, 1, "kill,pause,blink"); !slices.Equal(one, again) {
		t.Errorf("the same seed gives\n%v\nand then\n%v", one, again)
	}
	if other := perform(t, 2, "kill,pause,blink"); slices.Equal(one, other) {
		t.Errorf("another seed gives the same schedule")
	}
}

func TestFaultsAreFoundByName(t *testing.T) {
	w := &world{victims: []victim{&puppet{}}}
	found, refused, err := w.find("kill,server-pause")
	if err != nil || len(found) != 1 || len(refused) != 1 || !strings.HasPrefix(refused[0], "server-pause needs servers") {
		t.Errorf("found %d, refused %v, %v; want kill, and that there is no server to pause", len(found), refused, err)
	}
	if _, _, err := w.find("earthquake"); err == nil {
		t.Errorf("an unknown fault is no error")
	}
	w.redis, w.servers = true, make([]*testserver.Server, 1)
	found, _, err = w.find("all")
	if err != nil || slices.ContainsFunc(found, func(f fault) bool { return f.name == "flushall" }) || len(found) < 6 {
		t.Errorf("all are %d faults, %v; want the others, without flushall", len(found), err)
	}
}
