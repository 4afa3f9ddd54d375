//go:build unix

package main

import (
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testserver"
)

// heedSignals undoes what nohup does: the signals that it has ignored would be ignored
// by everything that the tests start. A program that is started gets none of the handlers
// of its starter.
func heedSignals() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
}

func exitCode(s *os.ProcessState) int {
	if w := s.Sys().(syscall.WaitStatus); w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// signal sends a signal by its short name. What STOP has stopped stands when it returns.
func (p *proc) signal(name string) {
	if n := unix.SignalNum("SIG" + name); n != 0 {
		_ = p.cmd.Process.Signal(n)
	}
	if name == "STOP" {
		must(p.t, testserver.AwaitStop(p.cmd.Process.Pid))
	}
}

// alive reports whether the process runs. A zombie is dead: whoever should wait for
// it may be stopped.
func alive(pid int) bool {
	if unix.Kill(pid, 0) == unix.ESRCH {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !os.IsNotExist(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// pid reads a process id that a command of the test wrote to a file, or will write as long as one of the
// programs runs that the test has started, or that run on a terminal.
func (s *stage) pid(file string) int {
	s.t.Helper()
	n := 0
	eventually(s.t, file+" has a process id", func() bool {
		ended := !s.terminal && !slices.ContainsFunc(s.procs, func(p *proc) bool { return !p.ended() })
		text := s.read(file)
		if !strings.HasSuffix(text, "\n") {
			if ended {
				for _, p := range s.procs {
					s.t.Logf("%q ended with %d: %s", p.cmd.Args, exitCode(p.cmd.ProcessState), p.err.String())
				}
				s.t.Fatalf("nobody has written %s", file)
			}
			return false
		}
		n, _ = strconv.Atoi(strings.TrimSpace(text))
		return n > 0
	})
	return n
}
