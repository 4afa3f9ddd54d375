//go:build unix && !linux

package child

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Subreaper says whether a kill reaches every descendant, in whatever group and session.
const Subreaper = false

// Self is this very program.
func Self() (string, error) { return os.Executable() }

// now is a clock that all processes share, in nanoseconds. On macOS it goes on
// while the machine sleeps.
func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

func until(at int64, fds ...int) []bool { return untilTimeout(at, fds...) }

// Without subreapers, orphans go to the system's first process. So only the group of the
// command is known.
func becomeSubreaper()              {}
func nameProcess(string)            {}
func descendants(int, ...int) []int { return nil }
func childrenOf(int) []int          { return nil }
func childless() bool               { return true }
func duplicate(from, to int) error  { return unix.Dup2(from, to) }
func zombie(int) bool               { return false }
func describe(pid int) string       { return "process " + strconv.Itoa(pid) }

// groupGone reports whether no process of the group is left.
func groupGone(group int) bool { return unix.Kill(-group, 0) == unix.ESRCH }

// stopGroup stops the processes of this group, and this one, which catches the
// signal, by another that cannot be caught: unless its parent is of another session,
// for then no shell could continue it.
func stopGroup(s syscall.Signal) {
	_ = unix.Kill(0, s)
	mine, _ := unix.Getsid(0)
	if theirs, err := unix.Getsid(unix.Getppid()); err == nil && theirs == mine {
		_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	}
}

func systemSignals() []syscall.Signal { return nil }
