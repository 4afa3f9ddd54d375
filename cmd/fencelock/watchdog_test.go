//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/drivertest/steps"
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
		holder := s.start("fencelock", "run", "--ttl", "5s", "n", "--", "sh", "-c", stubborn)
		s.pid("pid")
		holder.signal("STOP")
		s.wants(0, "run", "-w", "120", "n", "--", "sh", "-c", deathOf)
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
	holder := s.start("fencelock", "run", "--ttl", "5s", "n", "--", "sh", "-c", stubborn)
	s.pid("pid")
	holder.signal("STOP")
	dogs := watchdogs(t, holder.cmd.Process.Pid)
	for _, pid := range dogs {
		must(t, unix.Kill(pid, unix.SIGSTOP))
	}
	s.wants(0, "run", "-w", "120", "n", "--", "true")
	for _, pid := range dogs {
		must(t, unix.Kill(pid, unix.SIGCONT))
	}
	holder.signal("CONT")
	holder.wantExit(exitLost)
	holder.wantLine("was lost while the command ran", "SIGKILL", " after the lease: another holder may have begun before")
}

func TestStoppedJobIsKilledBeforeItCanRunOn(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.start("fencelock", "run", "--ttl", "5s", "n", "--", "sh", "-c", stubborn)
	pid := s.pid("pid")
	// As Ctrl-Z does: the command first, then whoever waits for it.
	must(t, unix.Kill(-pid, unix.SIGSTOP))
	holder.signal("STOP")
	eventually(t, "the stopped command is dead", func() bool { return !alive(pid) })
	beats := s.read("beats")
	_ = unix.Kill(-pid, unix.SIGCONT)
	holder.signal("CONT")
	holder.wantExit(exitLost)
	steps.Same(t, "the command ran on after its lock had ended", s.read("beats"), beats)
}

//verify:fault Processes | SIGSTOP for less than a lease
func TestStopShorterThanTheLeaseDoesNoHarm(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.holds(untilTold+"; exit 4", "--ttl", "20s")
	holder.signal("STOP")
	holder.signal("CONT")
	s.touch("enough")
	holder.wantExit(4)
}

func TestKilledHolderTakesItsWholeGroupWithIt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		const ttl = 5 * time.Second
		holder := s.start("fencelock", "run", "--ttl", ttl.String(), "n", "--", "sh", "-c",
			`(`+strings.ReplaceAll(stubborn, "echo $$ >pid", "sh -c 'echo $PPID >grandchild'")+`) & exec sh -c '`+strings.ReplaceAll(stubborn, `""`, `"" `)+`'`)
		child, grandchild := s.pid("pid"), s.pid("grandchild")
		killed := time.Now()
		holder.signal("KILL")
		holder.wait()
		eventually(t, "the command is dead", func() bool { return !alive(child) })
		eventually(t, "its child is dead", func() bool { return !alive(grandchild) })
		s.wants(0, "run", "-w", "120", "--report", "report", "n", "--", "sh", "-c", deathOf)
		s.wantDead()
		if took := s.acquired("report").Sub(killed); took > 10*ttl {
			t.Errorf("the name was free %v after its holder was killed, whose lease was %v", took, ttl)
		}
	})
}

// watchdogs returns the watchdogs of a fencelock.
func watchdogs(t *testing.T, of int) []int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	var found []int
	for _, file := range all {
		pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
		cmdline, _ := os.ReadFile(file)
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		if strings.Contains(string(cmdline), "__watchdog") && len(f) > 1 && f[0] != "Z" && f[1] == strconv.Itoa(of) {
			found = append(found, pid)
		}
	}
	return found
}

// killWatchdog kills the watchdog of a holder, and waits for another one.
func killWatchdog(t *testing.T, holder *proc) {
	t.Helper()
	old := watchdogs(t, holder.cmd.Process.Pid)
	if len(old) != 1 {
		t.Fatalf("there are %d watchdogs, want 1", len(old))
	}
	must(t, unix.Kill(old[0], unix.SIGKILL))
	eventually(t, "there is another watchdog", func() bool {
		now := watchdogs(t, holder.cmd.Process.Pid)
		return len(now) == 1 && now[0] != old[0]
	})
}

func TestKilledWatchdogIsReplaced(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.start("fencelock", "run", "--ttl", "5s", "n", "--", "sh", "-c", stubborn)
	pid := s.pid("pid")
	killWatchdog(t, holder)
	// The other one does its work.
	holder.signal("STOP")
	eventually(t, "the command of the stopped holder is dead", func() bool { return !alive(pid) })
	holder.signal("CONT")
	holder.wantExit(exitLost)
}

func TestCommandEndsAsBeforeAfterItsWatchdogWasKilled(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.holds(untilTold+`; (setsid sleep 100 & echo $! >daemon); exit 5`, "--ttl", "10s")
	killWatchdog(t, holder)
	holder.says("watchdog of the command was killed; another one took its place")
	s.touch("enough")
	holder.wantExit(5)
	must(t, unix.Kill(s.pid("daemon"), unix.SIGKILL))
}

func TestStoppedWatchdogIsContinued(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.start("fencelock", "run", "--ttl", "5s", "n", "--", "sh", "-c", stubborn)
	pid := s.pid("pid")
	watchdog := watchdogs(t, holder.cmd.Process.Pid)[0]
	stopped := func() bool {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(watchdog) + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(rest, "T")
	}
	holder.signal("STOP") // so that the stop of the watchdog can be seen
	must(t, unix.Kill(watchdog, unix.SIGSTOP))
	eventually(t, "the watchdog is stopped", stopped)
	holder.signal("CONT")
	eventually(t, "the watchdog runs again", func() bool { return !stopped() })
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
			flags := []string{"run", "--ttl", "5s", "outer"}
			if how == "max-hold" {
				flags = append(flags, "--max-hold", "10s") // from its start, so the inner one has to start before
			}
			// What the inner one runs is not in the group of the outer one.
			s.write("both", `sh grandchild.sh & echo $$ >pid; trap "" TERM; wait; wait`)
			s.write("grandchild.sh", `trap "" TERM; echo $$ >grandchild; while :; do sleep 0.02; done`)
			holder := s.start("fencelock", append(flags, "--", "fencelock", "run", "--ttl", "20s", "inner", "--", "sh", "both")...)
			child, grandchild := s.pid("pid"), s.pid("grandchild")
			next := s.start("fencelock", "run", "-w", "120", "outer", "--", "sh", "-c", deathOf)
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
