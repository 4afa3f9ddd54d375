//go:build unix && !linux

package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Self is this very program.
func Self() (string, error) { return os.Executable() }

// now is a clock that all processes share, in nanoseconds. On macOS it goes on
// while the machine sleeps.
func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

func until(fd int, at int64) bool { return untilTimeout(fd, at) }

// Without PDEATHSIG and subreapers the watchdog alone ends the group, and orphans
// go to the system's first process.
func becomeSubreaper()                   {}
func dieWithParent(*syscall.SysProcAttr) {}
func nameProcess(string)                 {}
func onlyZombies(int) bool               { return false }

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
