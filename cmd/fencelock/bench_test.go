//go:build unix

package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/history"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

func TestInterruptedBenchLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		p := s.start("fencelock", "bench", "--for", "600")
		eventually(t, "bench holds something", func() bool { return strings.Contains(s.must("ls"), "bench-") })
		p.signal("TERM")
		p.wantExit(exitNotAcquired)
		p.wantLine("interrupted")
		steps.Same(t, "after an interrupted bench this is left", s.must("ls", "bench-"), "")
	})
}

func TestBenchIsBounded(t *testing.T) {
	t.Parallel()
	phases := map[string]func(fencelock.Line) bool{"3": func(fencelock.Line) bool { return true }}
	if verifying {
		// It passes a lock for a sixth of the time. It may be told of the release and not of the next grant: it
		// waits for that until the end, and for the close up to 5 s longer.
		phases["40"] = func(l fencelock.Line) bool {
			return strings.HasSuffix(l.Key, "/1") && len(l.Claims) == 2 && !l.Claims[1].Granted
		}
	}
	for length, begins := range phases {
		t.Run(length, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			look := linesOf(t, server.URL(), "bench-")
			p := newStage(t, server.URL()).start("fencelock", "bench", "--for", length)
			eventually(t, "bench is at work", func() bool { return slices.ContainsFunc(look(), begins) })
			must(t, server.Pause())
			p.wantExit(exitUnavailable)
			p.wantLine("does not answer")
			must(t, server.Continue())
		})
	}
}

// linesOf lists what is locked under a prefix without a command of its own, which takes a second on
// a busy machine.
func linesOf(t *testing.T, url, prefix string) func() []fencelock.Line {
	t.Helper()
	open, err := storeurl.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(open.Close)
	c, err := fencelock.New(open.Backend, nil)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return func() (all []fencelock.Line) {
		for l, err := range c.Lines(t.Context(), prefix) {
			must(t, err)
			all = append(all, l)
		}
		return all
	}
}

// BenchmarkHistory takes a free lock and releases it, again and again for a second, without a
// history and with one, by turns. It reports what a pair took, and the ratio: at full speed,
// and with a pause of a millisecond after each pair.
//
//	go test -run '^$' -bench History -benchtime 8x ./cmd/fencelock
func BenchmarkHistory(b *testing.B) {
	for name, url := range map[string]func() string{
		"redis":    func() string { return testserver.Redis(b).URL() },
		"postgres": func() string { return testserver.Postgres(b).URL() },
		"sqlite":   func() string { return "sqlite://" + b.TempDir() + "/locks.db" },
	} {
		b.Run(name, func(b *testing.B) {
			u, err := storeurl.Parse(url(), storeurl.Source{Name: "the test"})
			must(b, err)
			for name, pause := range map[string]time.Duration{"full": 0, "paced": time.Millisecond} {
				b.Run(name, func(b *testing.B) { byTurns(b, u, pause) })
			}
		})
	}
}

func byTurns(b *testing.B, u *storeurl.URL, pause time.Duration) {
	var took [2]time.Duration
	var pairs [2]int
	for b.Loop() {
		for i := range 2 {
			n, d := freePairs(b, u, i == 1, pause)
			took[i], pairs[i] = took[i]+d, pairs[i]+n
		}
	}
	off, on := float64(took[0])/float64(pairs[0]), float64(took[1])/float64(pairs[1])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(off/1000, "µs/pair-off")
	b.ReportMetric(on/1000, "µs/pair-on")
	b.ReportMetric(on/off, "on/off")
}

// freePairs takes and releases a lock for a second. The pauses do not count.
func freePairs(b *testing.B, u *storeurl.URL, remember bool, pause time.Duration) (n int, took time.Duration) {
	ctx := context.Background()
	open, err := u.Open(ctx, storeurl.Config{})
	must(b, err)
	defer open.Close()
	var o fencelock.Options
	if remember {
		r, err := history.New(open.Backend, nil)
		must(b, err)
		o.OnEvent = r.OnEvent
	}
	c, err := fencelock.New(open.Backend, &o)
	must(b, err)
	defer c.Close()
	for begin := time.Now(); time.Since(begin) < time.Second; time.Sleep(pause) { // real time: the load of a benchmark
		start := time.Now()
		l, err := c.Lock(ctx, "orders/42")
		must(b, err)
		must(b, l.Release(ctx))
		took += time.Since(start)
		n++
	}
	return n, took
}
