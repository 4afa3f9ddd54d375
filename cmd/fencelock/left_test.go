//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// untilWritten is the end of a command whose writer has begun.
const untilWritten = "\nuntil [ -s beats ]; do sleep 0.02; done; exit 3"

// leaves starts a holder of n whose command starts a writer in this way and ends by itself.
func (s *stage) leaves(way string, flags ...string) (holder *proc, writer int) {
	s.t.Helper()
	writeProgram(s.t, s.path("beats.sh"), "755", beats)
	holder = s.start("fencelock", append(append([]string{"run"}, flags...), "n", "--", "bash", "-c", way+untilWritten)...)
	writer = s.pid("pid")
	s.t.Cleanup(func() { _ = unix.Kill(writer, unix.SIGKILL) })
	return holder, writer
}

func TestDaemonThatACommandLeavesIsNamed(t *testing.T) {
	t.Parallel()
	for _, watchdog := range []string{"lives", "was killed"} {
		t.Run("the watchdog "+watchdog, func(t *testing.T) {
			t.Parallel()
			s := sqliteStage(t)
			way := "setsid -f ./beats.sh >/dev/null 2>&1"
			if watchdog == "was killed" {
				way += "; until [ -e killed ]; do sleep 0.02; done"
			}
			holder, writer := s.leaves(way)
			if watchdog == "was killed" {
				must(t, unix.Kill(watchdogOf(holder), unix.SIGKILL))
				holder.says("was killed")
				s.touch("killed")
			}
			holder.wantExit(3)
			if !alive(writer) {
				t.Error("the daemon was ended with the command that started it")
			}
			s.wants(0, "run", "-n", "n", "--", "true")
			if said := holder.err.String(); !strings.Contains(said, fmt.Sprintf("left process %d (\"beats.sh\" of ", writer)) {
				t.Errorf("it said %q; want the daemon %d", said, writer)
			}
		})
	}
}

// A shell with job control gives a background job a group of its own. It works under the lock as
// one without job control does.
func TestNameStaysLockedForABackgroundJob(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder, writer := s.leaves("set -m; ./beats.sh >/dev/null 2>&1 &")
	holder.says(fmt.Sprintf("run on: process %d", writer), "the name stays locked until they end")
	s.wants(exitNotAcquired, "run", "-n", "n", "--", "true")
	s.must("break", "n", "--yes", "--token", token(s))
	holder.wantExit(exitLost)
	if alive(writer) {
		t.Error("the job goes on when its lock is lost and fencelock has ended")
	}
}

func TestSignalReachesABackgroundJobAndNoDaemon(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder, daemon := s.leaves(`setsid -f ./beats.sh >/dev/null 2>&1; set -m
		sh -c 'trap "echo told >told; exit 0" TERM; echo $$ >job; while :; do sleep 0.02; done' >/dev/null 2>&1 &`)
	s.pid("job")
	holder.says("run on: process")
	holder.signal("TERM")
	holder.wantExit(3)
	if s.read("told") == "" || !alive(daemon) {
		t.Errorf("the job was told %q, and the daemon lives: %v", s.read("told"), alive(daemon))
	}
}

// With --on-loss ignore the rest of a command may outlive the lock. That the name stays locked is not true then.
func TestNameThatIsNotLockedIsNotSaidToStay(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder, _ := s.runs(`echo $$ >pid; until [ -e lost ]; do sleep 0.02; done
		sh -c 'until [ -e enough ]; do sleep 0.02; done' & exit 3`, "-v", "--on-loss", "ignore")
	s.must("break", "n", "--yes", "--token", token(s))
	s.must("run", "n", "--", "true")
	holder.says("was lost: ", "runs on without it")
	s.touch("lost")
	holder.says("run on")
	if said := holder.err.String(); strings.Contains(said, "stays locked") {
		t.Errorf("it said %q", said)
	}
	s.touch("enough")
	holder.wantExit(exitLost)

	s = sqliteStage(t)
	holder, _ = s.runs(`sh -c 'echo $$ >pid; until [ -e enough ]; do sleep 0.02; done' & exit 3`, "--on-loss", "ignore")
	holder.says("other processes of its group run on", "stays locked")
	s.wants(exitNotAcquired, "wait", "-w", "0", "n")
	s.must("break", "n", "--yes", "--token", token(s))
	holder.says("was lost: ", "runs on without it")
	s.touch("enough")
	holder.wantExit(exitLost)
}

// The group of the command has the terminal. When it is gone, and a job is waited for, Ctrl-C must reach somebody.
func TestInterruptEndsTheWaitForABackgroundJob(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	b := newTerminal(t, s)
	b.answers(`fencelock run n -- bash -c 'set -m; sleep 1000 & echo $! >job; exit 3'; echo rc=$?.`, "run on: process")
	job := s.pid("job")
	b.types(ctrlC)
	b.shows("rc=3.")
	if alive(job) {
		t.Error("the job goes on")
	}
	b.goesOn()
}
