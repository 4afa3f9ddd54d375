//go:build linux

package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testserver"
)

// stubborn is a command that ends for KILL only. It says its process id, and that it
// lives, forty times a second.
const stubborn = `trap "" TERM INT HUP QUIT; echo $$ >pid; while :; do echo beat >>beats; sleep 0.025; done`

// deathOf is a command that notes what became of the process whose id is in pid, as
// the first thing that it does.
const deathOf = `read p <pid; cat /proc/$p/stat >seen 2>/dev/null || echo gone >seen`

// wantDead checks what deathOf saw.
func (s *stage) wantDead() {
	s.t.Helper()
	seen := s.read("seen")
	_, rest, _ := strings.Cut(seen, ") ")
	if !strings.HasPrefix(seen, "gone") && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X") {
		s.t.Errorf("the command of the last holder was alive when the next one began: %q", seen)
	}
}

//verify:fault Processes | SIGSTOP for more than a lease
func TestStoppedHolderHasNoRunningCommandWhenTheNextOneBegins(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		holder, _ := s.runs(stubborn, "--ttl", "10s")
		holder.signal("STOP")
		s.wants(0, "run", "n", "--", "sh", "-c", deathOf)
		s.wantDead()
		holder.signal("CONT")
		holder.wantExit(exitLost)
		holder.wantLine("was lost while the command ran", "SIGKILL")
		if text := holder.err.String(); strings.Contains(text, "after the lease") {
			t.Errorf("a command that was killed in time is said to have run on: %s", text)
		}
	})
}

// Nobody is left to kill the command while fencelock and its watchdog are both stopped.
func TestHolderThatWasStoppedWithItsWatchdogSaysThatItRanOn(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder, _ := s.runs(stubborn, "--ttl", "10s")
	watchdog := watchdogOf(holder) // looked for before, since the lease ends meanwhile
	holder.signal("STOP")
	must(t, unix.Kill(watchdog, unix.SIGSTOP))
	s.wants(0, "run", "n", "--", "true")
	must(t, unix.Kill(watchdog, unix.SIGCONT))
	holder.signal("CONT")
	holder.wantExit(exitLost)
	holder.wantLine("was lost while the command ran", "SIGKILL", " after the lease: another holder may have begun before")
}

//verify:fault Processes | SIGSTOP for less than a lease
func TestStopShorterThanTheLeaseDoesNoHarm(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.holds(untilTold+"; exit 4", "--ttl", "10m")
	watchdog := watchdogOf(holder)
	holder.signal("STOP")
	holder.signal("CONT")
	s.touch("enough")
	holder.wantExit(4)
	if alive(watchdog) {
		t.Error("the watchdog outlives its fencelock")
	}
}

func TestKilledHolderTakesItsWholeGroupWithIt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		const ttl = 5 * time.Second
		holder, child := s.runs(`(`+strings.ReplaceAll(stubborn, "echo $$ >pid", "sh -c 'echo $PPID >grandchild'")+
			`) & exec sh -c '`+stubborn+`'`, "--ttl", ttl.String())
		grandchild := s.pid("grandchild")
		killed := time.Now()
		holder.signal("KILL")
		holder.wait()
		eventually(t, "the command and its child are dead", func() bool { return !alive(child) && !alive(grandchild) })
		s.wants(0, "run", "--report", "report", "n", "--", "true")
		if took := s.acquired("report").Sub(killed); took > 10*ttl {
			t.Errorf("the name was free %v after its holder was killed, whose lease was %v", took, ttl)
		}
	})
}

// watchdogs returns the watchdogs of a fencelock.
func watchdogs(of *proc) []int {
	return slices.DeleteFunc(testserver.Children(of.cmd.Process.Pid), func(pid int) bool {
		cmdline, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		return !strings.Contains(string(cmdline), "__watchdog") // that of a dead one is empty
	})
}

// watchdogOf returns the one watchdog of a holder.
func watchdogOf(holder *proc) int {
	holder.t.Helper()
	all := watchdogs(holder)
	if len(all) != 1 {
		holder.t.Fatalf("there are %d watchdogs, want 1", len(all))
	}
	return all[0]
}

// killWatchdog kills the watchdog of a holder, and waits for another one.
func killWatchdog(t *testing.T, holder *proc) {
	t.Helper()
	old := watchdogOf(holder)
	must(t, unix.Kill(old, unix.SIGKILL))
	eventually(t, "there is another watchdog", func() bool {
		now := watchdogs(holder)
		return len(now) == 1 && now[0] != old
	})
}

func TestKilledWatchdogIsReplaced(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder, pid := s.runs(stubborn, "--ttl", "10s")
	killWatchdog(t, holder)
	holder.says("watchdog of the command was killed; another one took its place")
	// The other one does its work.
	holder.signal("STOP")
	eventually(t, "the command of the stopped holder is dead", func() bool { return !alive(pid) })
	holder.signal("CONT")
	holder.wantExit(exitLost)
}

func TestStoppedWatchdogIsContinued(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder, pid := s.runs(stubborn, "--ttl", "10s")
	watchdog := watchdogOf(holder)
	holder.signal("STOP") // so that the stop of the watchdog can be seen
	must(t, unix.Kill(watchdog, unix.SIGSTOP))
	must(t, testserver.AwaitStop(watchdog))
	holder.signal("CONT")
	eventually(t, "the watchdog runs again", func() bool { return !testserver.Stands(watchdog) })
	holder.signal("STOP")
	eventually(t, "the command of the stopped holder is dead", func() bool { return !alive(pid) })
	holder.signal("CONT")
	holder.wantExit(exitLost)
}

func TestOuterHolderTakesInnerOnesWithIt(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"killed", "stopped", "max-hold"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := sqliteStage(t)
			flags := []string{"run", "--ttl", "10s", "outer"}
			if how == "max-hold" {
				flags = append(flags, "--max-hold", "30s") // from its start, so the inner one has to start before
			}
			// What the inner one runs is not in the group of the outer one.
			s.write("both", `sh grandchild.sh & echo $$ >pid; trap "" TERM; wait; wait`)
			s.write("grandchild.sh", `trap "" TERM; echo $$ >grandchild; while :; do sleep 0.02; done`)
			holder := s.start("fencelock", append(flags, "--", "fencelock", "run", "--ttl", "10m", "inner", "--", "sh", "both")...)
			child, grandchild := s.pid("pid"), s.pid("grandchild")
			next := s.start("fencelock", "run", "outer", "--", "sh", "-c", deathOf)
			switch how {
			case "killed":
				holder.signal("KILL")
			case "stopped":
				holder.signal("STOP")
			}
			next.wantExit(0)
			s.wantDead()
			if alive(child) || alive(grandchild) {
				t.Errorf("the inner command lives: %v, its child: %v", alive(child), alive(grandchild))
			}
		})
	}
}
