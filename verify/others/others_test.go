package others

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/others/adapters"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "adapter" {
		ttl, err := time.ParseDuration(os.Args[3] + "ms")
		exit(errors.Join(err, adapters.Run(os.Args[2], os.Args[4], ttl, os.Stdin, os.Stdout)))
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "20"); err != nil { // they wait most of the time
		exit(err)
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// The harness tells a lock whose lease ends unheard of from one that renews its lease and tells its
// holder of the end. Each has its order on a real server.
func TestHarnessTellsLocksApart(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.Persist(true))
	self, err := os.Executable()
	steps.Must(t, err)
	const renews, ends = "fencelock-redis", "redsync"
	for _, c := range []struct {
		schedule, library string
		right             func(r result) bool
	}{
		{"kill", renews, func(r result) bool { return r.Next != never }},
		{"stop", renews, func(r result) bool { return r.Next != never && r.Told != never && r.Unlock == "lost" }},
		{"stop", ends, func(r result) bool { return r.Both > 0 && r.Told == never && r.Unlock == "lost" }},
		{"cut", renews, func(r result) bool { return r.Next != never && r.Told != never && r.Both == 0 }},
		{"cut", ends, func(r result) bool { return r.Both > 0 && r.Told == never && r.Unlock == "lost" }},
		{"outlive", renews, func(r result) bool { return r.Next == never && r.Both == 0 && r.Unlock == "released" }},
		{"outlive", ends, func(r result) bool { return r.Next != never && r.Both > 0 && r.Unlock == "lost" }},
		{"order", renews, func(r result) bool { return r.Both == 0 && len(r.Orders) == 3 && r.Tokens == "rise" }},
		{"order", ends, func(r result) bool { return r.Both == 0 && r.Tokens == "none" }},
		{"ghosts", renews, func(r result) bool { return r.GaveUp != never && r.Killed != never }},
	} {
		t.Run(c.schedule+"/"+c.library, func(t *testing.T) {
			t.Parallel()
			sch := schedules[slices.IndexFunc(schedules, func(s schedule) bool { return s.name == c.schedule })]
			s := &stage{command: []string{self, "adapter", c.library, "2000"}, store: server, ttl: 2 * time.Second, stderr: os.Stderr}
			if r := s.play(sch, t.Name()); r.Failed != "" || s.version == "" || !c.right(r) {
				t.Errorf("it looks like this: %+v", r)
			}
		})
	}
}

func TestTogether(t *testing.T) {
	t.Parallel()
	zero := time.Now()
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	p := &process{
		beliefs: []span{{at(-90), at(-80)}, {from: at(0)}},
		pauses:  []span{{at(20), at(50)}, {at(90), at(200)}},
	}
	a := p.active(at(100)) // 0–20, 50–90
	for _, c := range []struct {
		b    span
		want time.Duration
	}{
		{span{at(20), at(50)}, 0},
		{span{at(10), at(60)}, 20 * time.Millisecond},
		{span{at(95), at(99)}, 0},
		{span{at(-50), at(300)}, 60 * time.Millisecond},
		{span{at(-100), at(10)}, 20 * time.Millisecond},
	} {
		if got := together(a, []span{c.b}); got != c.want {
			t.Errorf("with %v–%v it is %v, and should be %v", c.b.from.Sub(zero), c.b.to.Sub(zero), got, c.want)
		}
	}
}

// The pages are of the results that were kept: nobody has changed a number by hand.
func TestPageIsOfItsResults(t *testing.T) {
	t.Parallel()
	pages, err := renderPages("..")
	steps.Must(t, err)
	for name, want := range pages {
		got, err := os.ReadFile(name)
		steps.Must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what its results make: go run ./cmd/others -page, in verify", name)
		}
	}
}
