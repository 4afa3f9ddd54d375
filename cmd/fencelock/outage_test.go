//go:build unix

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// A store that takes no writes, or has gone silent, is told of to those who wait.
func TestWaiterSaysThatTheStoreGivesNoAnswer(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newStage(t, server.URL())
	ask := func(args ...string) {
		t.Helper()
		_, err := server.Ask(args...)
		must(t, err)
	}

	// On a slow machine a request may get no answer, and then the refusal of the next one does not say for all.
	steps.Same(t, "what is told of a refusal", trouble(driver.Refused(errors.New("READONLY"))), " refuses for now: READONLY")
	ask("REPLICAOF", "127.0.0.1", "1")
	// -n does not wait, whatever the lease is.
	for _, verb := range []string{"run -w 10 n", "run -n n", "once -n n --slot hour"} {
		s.wants(exitUnavailable, append(strings.Fields(verb), "--ttl", "24h", "--", "true")...).wantLine("READONLY")
	}
	p := s.start("fencelock", "run", "n", "--", "true")
	p.says(`fencelock: "n": redis 127.0.0.1:`, "READONLY", "; asking again")
	ask("REPLICAOF", "NO", "ONE")
	p.wantExit(0)
	if text := p.err.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, " answers again\n") {
		t.Errorf("want one line that it refuses, and one that it answers again:\n%s", text)
	}

	// It falls silent while somebody waits, and the signal that ends the waiting says so.
	s.holds(longRun)
	p = s.start("fencelock", "run", "-v", "n", "--", "true")
	p.says(`waiting for "n"`)
	must(t, server.Pause())
	p.says(" gives no answer")
	p.signal("TERM")
	p.wantExit(128 + 15)
	p.says("left the line; redis 127.0.0.1:")
	must(t, server.Continue())
}
