//go:build linux

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

func TestLostLockEndsTheCommandBeforeTheLease(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	for _, c := range []struct {
		name, command string
		flags         []string
		line          string
		termed        bool
	}{
		{"asked", `trap "echo asked >>asked; exit 0" TERM; echo $$ >pid; while :; do sleep 0.02; done`, nil, "exit code 0", true},
		{"stubborn", stubborn, nil, "SIGKILL", true},
		{"killed at once", `trap "echo asked >>asked; exit 0" TERM; echo $$ >pid; while :; do sleep 0.02; done`, []string{"--on-loss", "kill"}, "SIGKILL", false},
		{"without grace", `trap "echo asked >>asked; exit 0" TERM; echo $$ >pid; while :; do sleep 0.02; done`, []string{"--grace", "0"}, "SIGKILL", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			s := newStage(t, server.URL())
			args := append([]string{"run", "--ttl", ttl.String(), "--report", "report", "n"}, c.flags...)
			holder := s.start("fencelock", append(args, "--", "sh", "-c", c.command)...)
			pid := s.pid("pid")
			must(t, server.Kill())
			// Whatever was renewed last was renewed before now.
			end := time.Now().Add(ttl)
			eventually(t, "the command is dead", func() bool { return !alive(pid) })
			tookAtMost(t, end, 0)
			holder.wantExit(exitLost)
			if !strings.Contains(holder.err.String(), c.line) || !strings.Contains(holder.err.String(), "could not be renewed in time") {
				t.Errorf("it said %q", holder.err.String())
			}
			if c.name != "stubborn" && (s.read("asked") != "") != c.termed {
				t.Errorf("TERM came: %v, want %v", s.read("asked") != "", c.termed)
			}
			var r report
			if err := json.Unmarshal([]byte(s.read("report")), &r); err != nil || r.Why != lockLost || r.Exit != exitLost || r.Who != "fencelock" {
				t.Errorf("the report says %+v (%v)", r, err)
			}
		})
	}
}

func TestLossIsToldAlsoWhenTheCommandRunsOn(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newStage(t, server.URL())
	holder := s.holds(untilTold+`; exit 0`, "-v", "--ttl", "5s", "--on-loss", "ignore")
	pid := s.pid("pid")
	must(t, server.Kill())
	holder.says("the command runs on")
	if !alive(pid) {
		t.Error("the command was ended although --on-loss is ignore")
	}
	s.touch("enough")
	holder.wantExit(exitLost)
}

func TestOutageShorterThanTheLeaseIsCarried(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.Persist(true))
	s := newStage(t, server.URL())
	holder := s.holds(untilTold+`; exit 6`, "-v", "--ttl", "15s")
	must(t, server.Kill())
	holder.says("at risk")
	must(t, server.Restart())
	// It may be renewed before this is asked; then the next renewal is seen.
	ends := func() time.Time {
		asked := time.Now()
		return asked.Add(time.Duration(holderOfN(t, s).LeftMS) * time.Millisecond)
	}
	before := ends()
	eventually(t, "it is renewed", func() bool { return ends().After(before.Add(time.Second)) })
	s.touch("enough")
	holder.wantExit(6)
}

func TestBrokenLockEndsTheCommandWithTheReason(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		holder := s.start("fencelock", "run", "--ttl", "9s", "n", "--", "sh", "-c",
			`trap "echo asked >asked; exit 0" TERM; echo $$ >pid; while :; do sleep 0.02; done`)
		s.pid("pid")
		s.must("break", "n", "--yes", "--reason", "deploy of web-3", "--token", token(t, s))
		holder.wantExit(exitLost)
		holder.wantLine("was lost while the command ran", "deploy of web-3", "exit code 0")
		if s.read("asked") == "" {
			t.Error("the command was not asked to end")
		}
	})
}
