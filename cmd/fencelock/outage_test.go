//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

// A store that takes no writes, or has gone silent, is told of to those who wait.
func TestWaiterSaysThatTheStoreGivesNoAnswer(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newStage(t, server.URL())
	says := func(p *proc, text string) {
		t.Helper()
		eventually(t, "it says "+text, func() bool { return strings.Contains(p.err.String(), text) })
	}
	ask := func(args ...string) {
		t.Helper()
		_, err := server.Ask(args...)
		must(t, err)
	}

	ask("REPLICAOF", "127.0.0.1", "1")
	p := s.wants(exitUnavailable, "run", "-w", "3", "n", "--", "true")
	p.wantLine(" refuses for now: ")
	// -n does not wait, whatever the lease is.
	for _, verb := range []string{"run -n n", "once -n n --slot hour"} {
		p := s.wants(exitUnavailable, append(strings.Fields(verb), "--ttl", "24h", "--", "true")...)
		p.wantLine(" refuses for now: ")
	}
	p = s.start("fencelock", "run", "n", "--", "true")
	says(p, `fencelock: "n": redis 127.0.0.1:`)
	says(p, " refuses for now: ")
	says(p, "READONLY")
	ask("REPLICAOF", "NO", "ONE")
	p.wantExit(0)
	if text := p.err.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, " answers again\n") {
		t.Errorf("want one line that it refuses, and one that it answers again:\n%s", text)
	}

	// It falls silent while somebody waits, and the signal that ends the waiting says so.
	holder := s.holds(longRun)
	p = s.start("fencelock", "run", "-v", "n", "--", "true")
	says(p, `waiting for "n"`)
	must(t, server.Pause())
	says(p, " gives no answer")
	p.signal("TERM")
	p.wantExit(128 + 15)
	says(p, "left the line; redis 127.0.0.1:")
	must(t, server.Continue())
	holder.signal("KILL")
}
