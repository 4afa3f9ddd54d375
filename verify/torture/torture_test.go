//go:build unix

package torture

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/verify/traffic"
)

func TestMain(m *testing.M) {
	traffic.Worker(allServices())
	if err := OwnMounts(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func allServices() traffic.Table {
	t := traffic.Schemes()
	maps.Copy(t, broken())
	return t
}

// seed is another one each time, unless the environment says which.
func seed(t *testing.T) uint64 {
	n := rand.Uint64N(1 << 40)
	if s := os.Getenv("FENCELOCK_TORTURE_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (set FENCELOCK_TORTURE_SEED to run it again)", n)
	return n
}

// folder is kept if the test fails.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("", "torture-")
	steps.Must(t, err)
	steps.Must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the history is kept in %s", dir)
			return
		}
		os.RemoveAll(dir)
	})
	return dir
}

// TestStoresStandATorture: all faults, on stores of each family. The command torture does
// the same for longer.
func TestStoresStandATorture(t *testing.T) {
	for _, name := range []string{"memory", "sqlite", "redis", "postgres", "mariadb", "etcd", "cluster"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(context.Background(), Options{
				Start: name, Table: allServices(), For: 10 * time.Second, Seed: seed(t), Faults: "all",
				Dir: folder(t), Workers: 3, Enough: enough(fewestGrants, fewestFaults, traffic.Ways()...),
			})
			steps.Must(t, err)
			var text bytes.Buffer
			r.Summary(&text)
			t.Log("\n" + text.String())
			if len(r.Violations) > 0 {
				t.Errorf("%d breaches; the first: %v", len(r.Violations), r.Violations[0])
			}
			// A run in which nothing happened shows nothing.
			if r.Numbers.Held < fewestGrants || r.faults() < fewestFaults {
				t.Errorf("%d grants and %d faults are too few to say anything", r.Numbers.Held, r.faults())
			}
			for _, way := range traffic.Ways() {
				if r.Numbers.ByWay[way] == 0 {
					t.Errorf("no lock was held in the way %s", way)
				}
			}
		})
	}
}

const fewestGrants, fewestFaults = 100, 2

// enough reports whether a run up to now has had so many grants and faults, and grants in each of
// these ways.
func enough(grants, faults int, ways ...string) func(lines []traffic.Line) bool {
	return func(lines []traffic.Line) bool {
		ops, seen := map[traffic.Op]int{}, map[string]bool{}
		for _, l := range lines {
			ops[l.Op]++
			if l.Op == traffic.Held {
				seen[traffic.Way(l.Key)] = true
			}
		}
		missing := slices.ContainsFunc(ways, func(way string) bool { return !seen[way] })
		return ops[traffic.Held] >= grants && ops[traffic.End] >= faults && !missing
	}
}

// TestTheTortureCatchesBrokenLocks proves the harness in each run: it drives locks that are
// broken in one way each, and must flag them for that. Whether the fault hits a moment
// that matters is chance, so each has several runs; one that survives them all fails the test.
func TestTheTortureCatchesBrokenLocks(t *testing.T) {
	for _, c := range []struct {
		service, start, faults string
		rules                  []string // any of these
		why                    string
	}{
		{"short-lease", "sqlite", "blink", []string{"I1", "model"}, "the store counts a third of the lease that the holder counts"},
		{"same-token", "sqlite", "none", []string{"I2", "I2b"}, "every grant carries the same token"},
		{"unwoken", "sqlite", "none", []string{"I5", "I6"}, "a waiter is not told of its grant, and does not ask again"},
		{"two-readers-write", "sqlite", "none", []string{"I10", "model"}, "a writer weighs as much as a reader"},
		{"redis+redislock", "redis", "pause", []string{"I1"}, "a lease without a word to its holder, as its documentation says"},
	} {
		t.Run(c.service, func(t *testing.T) {
			t.Parallel()
			first := seed(t)
			dir := folder(t)
			for attempt := range 4 {
				own := dir + "/" + strconv.Itoa(attempt)
				steps.Must(t, os.Mkdir(own, 0o755))
				r, err := Run(context.Background(), Options{
					Start: c.start, Service: c.service, Table: allServices(), For: 4 * time.Second, Seed: first + uint64(attempt), Faults: c.faults,
					TTL: 400 * time.Millisecond, Dir: own, Workers: 2, Epoch: 4 * time.Second,
					Ways: ways(c.service),
				})
				steps.Must(t, err)
				found := map[string]int{}
				for _, v := range r.Violations {
					found[string(v.Rule)]++
				}
				t.Logf("run %d: %v", attempt+1, found)
				if slices.ContainsFunc(c.rules, func(rule string) bool { return found[rule] > 0 }) {
					text, err := os.ReadFile(own + "/report.txt")
					steps.Must(t, err)
					if !strings.Contains(string(text), fmt.Sprint(len(r.Violations), " breaches")) || !strings.Contains(string(text), "▶") {
						t.Errorf("the report does not show what was breached: %s", r.Dir)
					}
					return
				}
			}
			t.Errorf("it survives, and should not: %s", c.why)
		})
	}
}

func ways(service string) []string {
	switch service {
	case "two-readers-write":
		return []string{"rw"}
	case "same-token":
		return []string{"mutex", "guard"}
	}
	return []string{"mutex"}
}

// A folder holds one history: two in one would be judged as if they were one.
func TestHistoriesAreNotMixed(t *testing.T) {
	o := Options{Start: "memory", Table: allServices(), For: 300 * time.Millisecond, Seed: 1, Faults: "none", TTL: 200 * time.Millisecond, Dir: t.TempDir()}
	steps.Must(t, steps.ErrOf(Run(context.Background(), o)))
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "there is a history in") {
		t.Errorf("%v; want that there is a history already", err)
	}
}
