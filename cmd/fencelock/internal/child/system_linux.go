package child

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Self is this very program, also when its file was replaced or removed.
func Self() (string, error) {
	const exe = "/proc/self/exe"
	if _, err := os.Stat(exe); err == nil {
		return exe, nil
	}
	return os.Executable()
}

// now is a clock that all processes share and that goes on while the machine
// sleeps, in nanoseconds.
func now() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	}
	return t.Nano()
}

// until waits until fd can be read or the clock says at, whichever comes first, and
// reports whether fd can be read. It may return early with false. The timer is the
// kernel's, on the clock that goes on during sleep: after a resume it fires at once.
func until(fd int, at int64) bool {
	wait := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if at != never {
		timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC)
		if err != nil {
			return untilTimeout(fd, at)
		}
		defer unix.Close(timer)
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(at, 1))}
		if err := unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
			return untilTimeout(fd, at)
		}
		wait = append(wait, unix.PollFd{Fd: int32(timer), Events: unix.POLLIN})
	}
	if _, err := unix.Poll(wait, -1); err != nil {
		return false
	}
	return wait[0].Revents != 0
}

func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent has the kernel kill the process when the thread that started it
// ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// nameProcess changes what ps shows as the command's name.
func nameProcess(name string) {
	if b, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
	}
}

// stopGroup stops this process and its group, as a shell expects of a job. Go keeps
// its handler of a signal that was ever caught, also after signal.Reset, and stopping
// with SIGSTOP instead would stop a job that nobody can continue: so the system's
// default is put in place for that moment.
//
// The group comes first, while this process ignores the signal. The system may choose
// any of its threads for one that is sent to the group, and that may come to run only
// when the handler is back. What is sent to this thread is taken before the call
// returns.
func stopGroup(s syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// All zeros mean the default on every architecture. What means to ignore is read
	// from a signal that is ignored for as long as there is a terminal.
	var standard, ignored, handler [8]uint64
	if !sigaction(unix.SIGTTOU, nil, &ignored) || !sigaction(s, &ignored, &handler) {
		return
	}
	defer sigaction(s, &handler, nil)
	_ = unix.Kill(0, s)
	sigaction(s, &standard, nil)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), s)
}

// sigaction is the system's own: the runtime of Go knows nothing of it.
func sigaction(s syscall.Signal, now, before *[8]uint64) bool {
	const maskSize = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(now)), uintptr(unsafe.Pointer(before)), maskSize, 0, 0)
	return errno == 0
}

// onlyZombies reports whether all that is left of the group is dead. A zombie keeps
// the group in being for as long as its parent does not wait for it, and that
// parent may be a process that left the group.
func onlyZombies(group int) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	seen := false
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid pgrp …, where the name may hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 3 || string(fields[2]) != strconv.Itoa(group) {
			continue
		}
		if s := string(fields[0]); s != "Z" && s != "X" {
			return false
		}
		seen = true
	}
	return seen
}

// systemSignals are those that only this system has.
func systemSignals() []syscall.Signal {
	s := []syscall.Signal{unix.SIGPWR, unix.SIGSTKFLT}
	for n := syscall.Signal(34); n <= 64; n++ { // the real-time signals
		s = append(s, n)
	}
	return s
}
