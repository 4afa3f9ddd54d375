//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// What bench uses is released whatever happens to it, and is nobody else's.
func TestBenchMeasuresAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		t.Parallel()
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
		if left := s.must("ls", "bench-"); left != "" {
			t.Errorf("after an interrupted bench this is left:\n%s", left)
		}
	})
}

func TestBenchIsBounded(t *testing.T) {
	t.Parallel()
	newStage(t, "memory:").wants(exitUsage, "bench", "--for", "0.1").wantLine("--for")
	for _, c := range []struct{ name, length, ls string }{
		{"at work", "3", `bench-`},
		{"passing a lock", "10", `^NAME.*\nbench-\w+/1 +held.*\nbench-\w+/1 +waits.*\n$`}, // for a sixth of that
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			s := newStage(t, server.URL())
			p := s.start("fencelock", "bench", "--for", c.length)
			begins := regexp.MustCompile(c.ls)
			eventually(t, "bench is "+c.name, func() bool { return begins.MatchString(s.must("ls")) })
			must(t, server.Pause())
			begun := time.Now()
			p.wantExit(exitUnavailable)
			p.wantLine("does not answer")
			tookAtMost(t, begun, 20*time.Second)
			must(t, server.Continue())
		})
	}
}
