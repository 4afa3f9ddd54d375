//go:build !wasip1

// Package bubble_test runs random programs on the core, in virtual time, on networks that
// fail, and judges their histories.
//
// A program is drawn as data and then run, so that rapid can make a failing one smaller.
// -rapid.seed repeats it. On all processors the machine orders the events of one instant. In
// the sandbox the program orders them, so a seed gives the same histories each time.
package bubble_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"pgregory.net/rapid"
)

// runs is how many programs each test runs unless -rapid.checks says otherwise.
const runs = "1000"

func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["rapid.checks"] {
		flag.Set("rapid.checks", runs)
	}
	if !given["rapid.seed"] {
		seed := uint64(1)
		if os.Getenv(drivertest.SeedVariable) == "random" {
			seed += rand.Uint64N(1 << 53)
		}
		flag.Set("rapid.seed", fmt.Sprint(seed))
	}
	// Shown in any case: a run that never ends says nothing of itself.
	fmt.Println("random programs: repeat with -rapid.seed=" + flag.Lookup("rapid.seed").Value.String())
	os.Exit(m.Run())
}

// check runs what the generator draws.
func check(t *testing.T, programs *rapid.Generator[program], run func(*testing.T, program) outcome) {
	grants, all := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		p := programs.Draw(rt, "program")
		o := run(t, p)
		grants += o.Grants
		all++
		if len(o.Faults) > 0 {
			rt.Fatalf("%s\n%+v\n%s", strings.Join(o.Faults, "\n"), p, strings.Join(o.Trace, "\n"))
		}
	})
	t.Logf("%d programs, %d grants", all, grants)
	if grants < all {
		t.Errorf("%d programs had %d grants: they test nothing", all, grants)
	}
}

func TestRandomProgramsOnAGoodNetwork(t *testing.T) {
	t.Parallel()
	check(t, programs(true), run)
}

//verify:fault The API, on all stores | the context ends at each step
func TestRandomProgramsUnderFaults(t *testing.T) {
	t.Parallel()
	check(t, programs(false), run)
}

// TestReplay runs random programs in the sandbox, and sees that it keeps its promise.
func TestReplay(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		withoutRace(t)
		return
	}
	s := newSandbox(t)
	t.Run("OnAGoodNetwork", func(t *testing.T) {
		t.Parallel()
		check(t, programs(true), s.run)
	})
	t.Run("UnderFaults", func(t *testing.T) {
		t.Parallel()
		check(t, programs(false), s.run)
	})
	// A failure that cannot be repeated is of little use. A program has the same history
	// each time; and the seed of the order does something, for among many programs some
	// have another history with another one.
	t.Run("IsExact", func(t *testing.T) {
		t.Parallel()
		seed, err := strconv.ParseInt(flag.Lookup("rapid.seed").Value.String(), 10, 64)
		steps.Must(t, err)
		const all = 100
		differ := 0
		for i := range all {
			p := programs(false).Example(int(seed) + i)
			one, two := s.run(t, p), s.run(t, p)
			if !slices.Equal(one.Trace, two.Trace) || !slices.Equal(one.Faults, two.Faults) {
				t.Fatalf("a program with two histories:\n%+v\n%s\n\n%s", p, strings.Join(one.Trace, "\n"), strings.Join(two.Trace, "\n"))
			}
			p.Order++
			if !slices.Equal(one.Trace, s.run(t, p).Trace) {
				differ++
			}
		}
		t.Logf("%d of %d have another history in another order", differ, all)
		if differ == 0 {
			t.Error("the seed of the order changes nothing")
		}
	})
}

// withoutRace runs this test in a process of its own that has no race detector. It would
// find nothing, for all that is tested is on one thread of another machine, and it watches
// each byte of that machine's memory: a program takes six times as long.
func withoutRace(t *testing.T) {
	args := []string{"-test.v", "-test.timeout=0", "-test.run=^" + t.Name() + "$"}
	flag.Visit(func(f *flag.Flag) {
		if strings.HasPrefix(f.Name, "rapid.") {
			args = append(args, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	})
	out, err := exec.CommandContext(t.Context(), build(t), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
