package others

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/others/adapters"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "fake" {
		exit(runFakeAdapter(os.Args[2], os.Args[3], os.Stdin))
	}
	if len(os.Args) > 1 && os.Args[1] == "adapter" {
		ttl, err := time.ParseDuration(os.Args[3] + "ms")
		exit(errors.Join(err, adapters.Run(os.Args[2], os.Args[4], ttl, os.Stdin, os.Stdout)))
	}
	flag.Parse()
	exit(errors.Join(flag.Set("test.parallel", "20"), played(m.Run()))) // they wait most of the time
}

func played(code int) error {
	if code != 0 {
		return fmt.Errorf("the tests end with %d", code)
	}
	return nil
}

func exit(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// The harness tells locks that are wrong from one that is right, by what each schedule looks
// for. Bounds are wide: the machine may be busy.
func TestHarnessSeesWhatIsWrong(t *testing.T) {
	const short, long = 600 * time.Millisecond, 2 * time.Second
	for _, c := range []struct {
		schedule, way string
		ttl           time.Duration
		wrong         func(r result) bool // what must not be seen
	}{
		{"kill", right, short, func(r result) bool { return r.Next == never || r.Next < short/3 }},
		{"kill", everyone, short, func(r result) bool { return r.Next == never || r.Next > short/2 }},

		{"stop", right, short, func(r result) bool { return r.Next == never || r.Told == never || r.Unlock != "lost" }},
		{"stop", silent, short, func(r result) bool { return r.Both < short/8 || r.Told != never || r.Unlock != "lost" }},

		{"cut", right, short, func(r result) bool { return r.Next == never || r.Told == never || r.Told > 2*short }},
		{"cut", silent, short, func(r result) bool { return r.Both < short/8 || r.Told != never || r.Unlock != "lost" }},

		{"outlive", right, 2 * short, func(r result) bool { return r.Next != never || r.Both > 0 || r.Unlock != "released" }},
		{"outlive", silent, short, func(r result) bool { return r.Next == never || r.Both < short/8 || r.Unlock != "lost" }},

		{"order", right, short, func(r result) bool { return r.Both > 0 || len(r.Orders) != 3 || r.Tokens != "none" }},
		{"order", everyone, short, func(r result) bool { return r.Both == 0 }},

		{"ghosts", right, long, func(r result) bool { return r.GaveUp > long/2 || r.Unheard < 0 || r.Killed > long/2 }},
		{"ghosts", leftOver, long, func(r result) bool { return r.GaveUp < long/2 && r.GaveUp != never }},
	} {
		t.Run(c.schedule+"/"+c.way, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			steps.Must(t, err)
			s := &stage{command: []string{self, "fake", c.way}, store: startFakeStore(t), ttl: c.ttl, stderr: os.Stderr}
			r := s.play(find(t, c.schedule), "key")
			if r.Failed != "" || c.wrong(r) {
				t.Errorf("a lock that is %s looks like this: %+v", c.way, r)
			}
		})
	}
}

func find(t *testing.T, name string) schedule {
	t.Helper()
	for _, sch := range schedules {
		if sch.name == name {
			return sch
		}
	}
	t.Fatalf("there is no schedule %s", name)
	return schedule{}
}

// Real adapters on a real server, with the schedule that has no fault.
func TestAdaptersOnTheirServer(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.Persist(true))
	self, err := os.Executable()
	steps.Must(t, err)
	for name, tokens := range map[string]string{"fencelock-redis": "rise", "redsync": "none"} {
		s := &stage{command: []string{self, "adapter", name, "2000"}, store: server, ttl: time.Second, stderr: os.Stderr}
		r := s.play(find(t, "order"), name)
		if r.Failed != "" || r.Both > 0 || r.Tokens != tokens || s.version == "" {
			t.Errorf("%s: %+v", name, r)
		}
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
