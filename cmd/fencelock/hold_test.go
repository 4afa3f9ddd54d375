//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

func TestShellIsToldThatItsLockIsLost(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	for _, c := range []struct {
		flags string
		code  int
		line  string
	}{
		{"", 5, "was sent TERM"},
		{"--on-loss kill", 137, "was sent KILL"},
		{"--on-loss ignore", 6, "the shell runs on"},
	} {
		t.Run("on-loss"+c.flags, func(t *testing.T) {
			server := testserver.Redis(t)
			s := newStage(t, server.URL())
			shell := s.start("sh", "-c", `exec 9>>lock
				fencelock hold --ttl 2 `+c.flags+` n --fd 9 || exit
				trap "exit 5" TERM
				echo $$ >pid; until [ -e enough ]; do sleep 0.02; done; exit 6`)
			s.pid("pid")
			must(t, server.Kill())
			end := time.Now().Add(ttl)
			eventually(t, "the loss is told", func() bool { return strings.Contains(shell.err.String(), c.line) })
			tookAtMost(t, end, 0)
			if c.code == 6 {
				s.touch("enough")
			}
			shell.wantExit(c.code)
			if !strings.Contains(shell.err.String(), `"n" (token `) || !strings.Contains(shell.err.String(), "was lost: ") {
				t.Errorf("it said %q", shell.err.String())
			}
		})
	}
}

func TestBrokenHoldIsToldWithTheReason(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	shell := s.start("sh", "-c", `exec 9>>lock
		fencelock hold --ttl 2 n --fd 9 --print-token >token || exit
		trap "exit 5" TERM
		echo $$ >pid; while :; do sleep 0.02; done`)
	s.pid("pid")
	s.must("break", "n", "--yes", "--reason", "deploy", "--token", strings.TrimSpace(s.read("token")))
	shell.wantExit(5)
	shell.wantLine("was lost", "deploy", "was sent TERM")
}

// waitingHold starts a hold that waits behind somebody.
func waitingHold(t *testing.T, s *stage) *proc {
	t.Helper()
	s.holds(longRun)
	file, err := os.Create(s.path("lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := s.command("fencelock", "hold", "n", "--fd", "3")
	p.cmd.ExtraFiles = []*os.File{file}
	t.Cleanup(func() { eventually(t, "the agent has ended", func() bool { return s.agents() == 0 }) })
	p.begin()
	eventually(t, "it waits", func() bool { return strings.Contains(s.must("ls"), "waits") })
	return p
}

// agents counts the agents that work for this stage.
func (s *stage) agents() (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		cmdline, _ := os.ReadFile(file)
		environ, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
		if strings.Contains(string(cmdline), "__agent") && strings.Contains(string(environ), s.url) {
			n++
		}
	}
	return n
}

func TestInterruptedHoldLeavesTheLine(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		p := waitingHold(t, s)
		p.signal("INT")
		p.wantExit(130)
		p.wantLine("SIGINT while waiting; left the line")
		if out := s.must("ls"); strings.Contains(out, "waits") {
			t.Errorf("it is still in line:\n%s", out)
		}
	})
}

func TestKilledHoldLeavesTheLine(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	p := waitingHold(t, s)
	p.signal("KILL")
	p.wait()
	eventually(t, "it left the line", func() bool { return !strings.Contains(s.must("ls"), "waits") })
}

func TestHoldSurvivesTheInterruptionOfItsGroup(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	shell := s.start("setsid", "-w", "sh", "-c", `exec 9>>lock
		fencelock hold n --fd 9 || exit
		trap "" INT
		kill -INT 0
		fencelock free n; echo $? >free
		exec 9>&-
		fencelock wait n`)
	if code := shell.wait(); code != 0 || strings.TrimSpace(s.read("free")) != "75" {
		t.Errorf("exit %d, free says %q: %s", code, s.read("free"), shell.err.String())
	}
}
