//go:build linux

package main

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// asked is a command that notes that it was asked to end, and ends. It says that it lives, as stubborn does.
const asked = `trap "echo asked >>asked; exit 0" TERM; echo $$ >pid; while :; do echo beat >>beats; sleep 0.025; done`

func TestLostLockEndsTheCommandBeforeTheLease(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	for _, c := range []struct {
		name, command string
		flags         []string
		line          string
		termed        bool
	}{
		{"asked", asked, nil, "exit code 0", true},
		{"stubborn", stubborn, nil, "SIGKILL", true},
		{"killed at once", asked, []string{"--on-loss", "kill"}, "SIGKILL", false},
		{"without grace", asked, []string{"--grace", "0"}, "SIGKILL", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			s := newStage(t, server.URL())
			holder, _ := s.runs(c.command, append(c.flags, "--ttl", ttl.String(), "--report", "report")...)
			must(t, server.Kill())
			// Whatever was renewed last was renewed before now.
			end := time.Now().Add(ttl)
			holder.wantExit(exitLost)
			if beat, err := os.Stat(s.path("beats")); err != nil || beat.ModTime().After(end) {
				t.Errorf("the command lived after its lease: %v, %v; want %v", beat, err, end)
			}
			holder.says("could not be renewed in time", "the command ended with "+c.line+"\n")
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

// leaseEnd is when the lease of n ends, as the store says.
func (s *stage) leaseEnd() time.Time {
	s.t.Helper()
	asked := time.Now()
	return asked.Add(time.Duration(holderOfN(s).LeftMS) * time.Millisecond)
}

func TestOutageShorterThanTheLeaseIsCarried(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.Persist(true))
	s := newStage(t, server.URL())
	holder := s.holds(untilTold+`; exit 6`, "-v")
	must(t, server.Kill())
	holder.says("at risk")
	must(t, server.Restart())
	// It may be renewed before this is asked; then the next renewal is seen.
	before := s.leaseEnd()
	eventually(t, "it is renewed", func() bool { return s.leaseEnd().After(before.Add(time.Second)) })
	s.touch("enough")
	holder.wantExit(6)
}

func TestBrokenLockEndsTheCommandWithTheReason(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		holder, _ := s.runs(asked, "--ttl", "15s")
		s.must("break", "n", "--yes", "--reason", "deploy of web-3", "--token", token(s))
		holder.wantExit(exitLost)
		holder.wantLine("was lost while the command ran", "deploy of web-3", "exit code 0")
		if s.read("asked") == "" {
			t.Error("the command was not asked to end")
		}
	})
}
