//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// What bench uses is released whatever happens to it, and is nobody else's.
func TestBenchMeasuresAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		holder := s.start("fencelock", "run", "nightly", "--", "sh", "-c", "echo yes >held; exec sleep 600")
		eventually(t, "nightly is held", func() bool { return s.read("held") != "" })

		s.must("bench", "--for", "0.3")
		left := s.must("ls")
		if strings.Contains(left, "bench-") || strings.Count(left, "\n") != 2 || !strings.Contains(left, "nightly") {
			t.Errorf("after bench this is left:\n%s", left)
		}
		if holder.ended() {
			t.Error("bench ended a lock that was held")
		}

		// Interrupted in the middle, it gives back what it holds.
		p := s.start("fencelock", "bench", "--for", "60")
		eventually(t, "bench holds something", func() bool { return strings.Contains(s.must("ls"), "bench-") })
		p.signal("TERM")
		p.wantExit(exitNotAcquired)
		p.wantLine("interrupted")
		steps.Same(t, "after an interrupted bench this is left", s.must("ls", "bench-"), "")
	})
}

func TestBenchIsBounded(t *testing.T) {
	t.Parallel()
	passes := func(l fencelock.Line) bool {
		return strings.HasSuffix(l.Key, "/1") && len(l.Claims) == 2 && !l.Claims[1].Granted
	}
	for _, c := range []struct {
		name, length string
		begins       func(fencelock.Line) bool
	}{
		{"at work", "3", func(fencelock.Line) bool { return true }},
		// It does that for a sixth of the time, from 4.7 s on. It may be told of the release and not
		// of the next grant. It waits for that until 18.5 s, and for the close up to 5 s longer.
		{"passing a lock", "8", passes},
	} {
		if c.name == "passing a lock" && !verifying {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			look := linesOf(t, server.URL(), "bench-")
			s := newStage(t, server.URL())
			p := s.start("fencelock", "bench", "--for", c.length)
			eventually(t, "bench is "+c.name, func() bool { return slices.ContainsFunc(look(), c.begins) })
			must(t, server.Pause())
			begun := time.Now()
			p.wantExit(exitUnavailable)
			p.wantLine("does not answer")
			tookAtMost(t, begun, 20*time.Second)
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
