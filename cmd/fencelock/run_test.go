//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestExactlyOneProcessHoldsANameAtATime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		const processes, holds = 4, 5
		// A counter that is lost when two write it at once, and a file that tells when two
		// are inside.
		const inside = `[ -e inside ] && echo overlap >>wrong; : >inside; read n <count; echo $((n+1)) >count; rm inside`
		s.write("count", "0\n")
		loop := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do fencelock run n -- sh -c '%s; echo $FENCELOCK_TOKEN >>tokens' || exit 1; i=$((i+1)); done`, holds, inside)
		var all []*proc
		for range processes {
			all = append(all, s.start("sh", "-c", loop))
		}
		for _, p := range all {
			p.wantExit(0)
		}
		if got := strings.TrimSpace(s.read("count")); got != strconv.Itoa(processes*holds) {
			t.Errorf("the counter is %s, want %d", got, processes*holds)
		}
		if wrong := s.read("wrong"); wrong != "" {
			t.Errorf("two held the name at once, %d times", strings.Count(wrong, "\n"))
		}
		last := 0
		for token := range strings.Lines(s.read("tokens")) {
			n, _ := strconv.Atoi(strings.TrimSpace(token))
			if n <= last {
				t.Fatalf("token %d came after %d", n, last)
			}
			last = n
		}
		steps.Same(t, "something is left in the store", s.must("ls"), "")
	})
}

func TestKilledWaiterDelaysNobodyBeyondItsLease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		const ttl = 5 * time.Second
		holder := s.holds(untilTold)
		dead := s.waits(1, "--ttl", ttl.String())
		next := s.waits(2, "--report", "report")
		dead.signal("KILL")
		dead.wait()
		free := time.Now()
		s.touch("enough")
		next.wantExit(0)
		if took := s.acquired("report").Sub(free); took > 10*ttl {
			t.Errorf("the next one waited %v, the lease of the dead one is %v", took, ttl)
		}
		holder.wait()
	})
}

// acquired is when a fencelock that wrote a report had its lock.
func (s *stage) acquired(file string) time.Time {
	s.t.Helper()
	var r report
	if err := json.Unmarshal([]byte(s.read(file)), &r); err != nil || r.Acquired == nil {
		s.t.Fatalf("%s: %q: %v", file, s.read(file), err)
	}
	return *r.Acquired
}

func TestSignalsReachEveryProcessOfTheGroup(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	const both = `trap "echo $0 >>got; exit 9" USR1; echo $$ >pid-$0; while :; do sleep 0.02; done`
	holder := s.start("fencelock", "run", "n", "--", "sh", "-c", "sh -c '"+both+"' child & sh -c '"+both+"' parent; wait; exit 9")
	s.pid("pid-parent")
	s.pid("pid-child")
	holder.signal("USR1")
	// The shell around them dies of it.
	holder.wantExit(128 + int(unix.SIGUSR1))
	got := s.read("got")
	for _, who := range []string{"parent", "child"} {
		if !strings.Contains(got, who) {
			t.Errorf("the %s did not get the signal: %q", who, got)
		}
	}
	if strings.Contains(holder.err.String(), "fencelock: ") {
		t.Errorf("a command that died of its signal is no reason to say %q", holder.err.String())
	}
}

func TestSignalWhileWaitingLeavesTheLine(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		s.holds(longRun)
		for name, code := range map[string]int{"INT": 130, "TERM": 143, "HUP": 129, "USR2": 140} {
			waiter := s.waits(1)
			waiter.signal("WINCH")
			waiter.signal(name)
			waiter.wantExit(code)
			waiter.wantLine("SIG"+name+" while waiting", "left the line")
			if strings.Contains(s.must("ls"), "waits") {
				t.Errorf("a waiter that got SIG%s is still in line", name)
			}
		}
		steps.Same(t, "a command ran without its lock", s.read("ran"), "")
	})
}

// The hooks of the library are called one after another, and one that cannot say what
// it has to say holds up all others. The watchdog must hear of renewals all the same.
func TestStderrThatNobodyReadsDoesNotEndTheCommand(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	var pipe [2]int
	must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	for err := error(nil); err == nil; {
		_, err = unix.Write(pipe[1], make([]byte, 1024))
	}
	must(t, unix.SetNonblock(pipe[1], false))
	stderr := os.NewFile(uintptr(pipe[1]), "stderr")
	p := s.command("fencelock", "run", "-v", "--ttl", "10s", "n", "--", "sh", "-c", "echo $$ >pid; "+untilTold+"; exit 6")
	p.cmd.Stderr = stderr
	p.begin()
	stderr.Close()
	pid := s.pid("pid")
	end := s.leaseEnd()
	eventually(t, "it was renewed after the first lease", func() bool { return s.leaseEnd().After(end.Add(10 * time.Second)) })
	s.touch("enough")
	eventually(t, "the command has ended", func() bool { return !alive(pid) })
	eventually(t, "fencelock has ended", func() bool {
		_, _ = unix.Read(pipe[0], make([]byte, 4096))
		return p.ended()
	})
	unix.Close(pipe[0])
	p.wantExit(6)
}

func TestMinHoldKeepsTheNameTakenAfterTheEnd(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		s.must("run", "--min-hold", "1h", "n", "--", "true")
		s.wants(exitNotAcquired, "run", "-n", "n", "--", "true")
		if out := s.must("ls"); !strings.Contains(out, "lingers") {
			t.Errorf("ls says %q", out)
		}
		s.must("run", "--min-hold", "1", "short", "--", "true")
		s.must("run", "short", "--", "true")
	})
}

// The command must find the world as it would without fencelock: the same signals
// ignored and blocked, the same limits, the same open files, the same group of terminals.
func TestCommandInheritsWhatItWouldWithoutUs(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	const look = `grep -E "^Sig(Blk|Ign)|^Seccomp:|^NoNewPrivs" /proc/self/status; ulimit -n; ulimit -Hn; umask; pwd; ls -l /proc/self/fd | awk "{print \$9,\$10,\$11}" | grep -v -E "pipe|/proc/|^3 |^ *$"; echo "$1|$2"`
	for _, prelude := range []string{
		"",
		"trap '' HUP INT; ",
		"ulimit -Sn 200; ",
		"exec 7>seven 11<eleven; ",
		"umask 077; cd /; ",
	} {
		s.touch("eleven")
		_, plainly := s.run("sh", "-c", prelude+"exec sh -c '"+look+"' sh 'a b' '*'")
		_, under := s.run("sh", "-c", prelude+"exec fencelock run n -- sh -c '"+look+"' sh 'a b' '*'")
		if under.out.String() != plainly.out.String() || under.err.String() != plainly.err.String() {
			t.Errorf("after %q the command finds\n%s%s\nwithout fencelock it finds\n%s", prelude, under.out.String(), under.err.String(), plainly.out.String())
		}
	}
}

func TestReportSaysWhoExitedAndWhy(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	s.holds(longRun)
	for _, c := range []struct {
		args string
		want report
	}{
		{"run m -- true", report{Who: "command", Why: byItself}},
		{"run m -- sh -c 'exit 3'", report{Who: "command", Why: byItself, Exit: 3, Command: &commandEnd{Exit: 3}}},
		{"run m -- sh -c 'kill -9 $$'", report{Who: "command", Why: bySignal, Exit: 137, Command: &commandEnd{Exit: 137, Signal: "SIGKILL"}}},
		{"run --max-hold 11 --grace 10 m -- sleep 1000", report{Who: "fencelock", Why: heldToMax, Exit: 124, Command: &commandEnd{Exit: 143, Signal: "SIGTERM"}}},
		{"run -n n -- true", report{Who: "fencelock", Why: notStarted, Exit: 75}},
		{"run -n -E 4 n -- true", report{Who: "fencelock", Why: notStarted, Exit: 4}},
		{"run m -- ./nothing", report{Who: "fencelock", Why: notStarted, Exit: 127}},
		{"once o --slot 2026-01-01 -- true", report{Who: "command", Why: byItself}},
		{"once o --slot 2026-01-01 -- true", report{Who: "fencelock", Why: doneAlready}},
	} {
		os.Remove(s.path("report"))
		verb, rest, _ := strings.Cut(c.args, " ")
		code, p := s.run("sh", "-c", "fencelock "+verb+" --report report "+rest)
		var got report
		if err := json.Unmarshal([]byte(s.read("report")), &got); err != nil {
			t.Errorf("%s: %v (%s)", c.args, err, p.err.String())
			continue
		}
		if got.Who != c.want.Who || got.Why != c.want.Why || got.Exit != c.want.Exit || code != c.want.Exit {
			t.Errorf("%s: %+v, exit %d; want %+v", c.args, got, code, c.want)
		}
		if c.want.Command != nil && (got.Command == nil || *got.Command != *c.want.Command) {
			t.Errorf("%s: the command ended as %+v, want %+v", c.args, got.Command, c.want.Command)
		}
		if (got.Command != nil) != (got.Token != "") || got.Name == "" || (got.Message != "") != (got.Who == "fencelock" && got.Exit != 0) {
			t.Errorf("%s: the report contradicts itself: %+v", c.args, got)
		}
	}
	if files, _ := filepath.Glob(s.path(".fencelock-report*")); len(files) > 0 {
		t.Errorf("scratch files are left: %v", files)
	}
}
