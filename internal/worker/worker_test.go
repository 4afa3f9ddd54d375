package worker

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/memlock"
)

func TestMain(m *testing.M) {
	Main(On(func(string) (driver.Backend, func(), error) { return memlock.New(), func() {}, nil }))
	os.Exit(m.Run())
}

func order(do Job) Order[string] { return Order[string]{Do: do, Key: "k", TTL: time.Minute} }

func TestHold(t *testing.T) {
	t.Parallel()
	o := order(Hold)
	o.N = 2
	before := time.Now()
	p := Start(t, o)
	first, at := p.Held()
	if first <= 0 || at.Before(before) || at.After(time.Now()) {
		t.Errorf("held with token %d at %v", first, at)
	}
	p.Tell("leave")
	p.Hears("left ok")
	if second, _ := p.Held(); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	p.Tell()
	p.Hears("left ok")
	p.Succeeds()
}

func TestCount(t *testing.T) {
	t.Parallel()
	o := order(Count)
	o.N, o.File = 3, filepath.Join(t.TempDir(), "n")
	steps.Must(t, os.WriteFile(o.File, []byte("4"), 0o600))
	Start(t, o).Succeeds()
	if text, err := os.ReadFile(o.File); string(text) != "7" || err != nil {
		t.Errorf("the number is %q, %v", text, err)
	}
	if log, err := os.ReadFile(o.File + ".log"); len(log) == 0 || err != nil {
		t.Errorf("the log is %q, %v", log, err)
	}
}

func TestReadyRenewAndStorm(t *testing.T) {
	t.Parallel()
	p := Start(t, order(Ready))
	p.Hears("ready")
	p.Tell()
	p.Held()
	p.Hears("left ok")
	p.Succeeds()

	p = Start(t, order(Renew))
	p.Held()
	p.Kill()

	p = Start(t, order(Storm))
	p.Hears("works")
	p.Kill()
	p.Kill()
}

func TestUntil(t *testing.T) {
	t.Parallel()
	p := Start(t, order(Ready))
	p.Tell()
	rest, before := p.Until("left")
	if rest != "ok" || len(before) != 2 || before[0] != "ready" {
		t.Errorf("%q, and %q before", rest, before)
	}
}

// A worker whose parent is gone must not stay, whatever it does.
func TestWorkerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	p := Start(t, order(Storm))
	p.Hears("works")
	p.in.Close()
	if err := p.end(); err == nil {
		t.Error("a storm ended by itself")
	}
}
