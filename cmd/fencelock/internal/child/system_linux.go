package child

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Subreaper says whether a kill reaches every descendant, in whatever group and session.
const Subreaper = true

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

// until waits until one of fds can be read or the clock says at, whichever comes first,
// and reports which can be read. It may return early with none. The timer is the
// kernel's, on the clock that goes on during sleep: after a resume it fires at once.
func until(at int64, fds ...int) []bool {
	if at == never {
		return poll(fds, -1)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC)
	if err != nil {
		return untilTimeout(at, fds...)
	}
	defer unix.Close(timer)
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(at, 1))}
	if err := unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		return untilTimeout(at, fds...)
	}
	return poll(append([]int{timer}, fds...), -1)[1:]
}

// childless reports whether this process has no child. Unlike a look at /proc it misses
// none.
func childless() bool {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == unix.ECHILD
		}
	}
}

func duplicate(from, to int) error { return unix.Dup3(from, to, 0) }

func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

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

// systemSignals are those that only this system has.
func systemSignals() []syscall.Signal {
	s := []syscall.Signal{unix.SIGPWR, unix.SIGSTKFLT}
	for n := syscall.Signal(34); n <= 64; n++ { // the real-time signals
		s = append(s, n)
	}
	return s
}
