//go:build unix

package child

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

var forwarded = sync.OnceValue(func() []os.Signal {
	all := []syscall.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM,
		unix.SIGCONT, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGWINCH, unix.SIGIO, unix.SIGABRT,
	}
	var s []os.Signal
	for _, n := range append(all, systemSignals()...) {
		// What was ignored on the way in (nohup) stays ignored, here and in the
		// command: Notify would undo it.
		if !signal.Ignored(n) {
			s = append(s, n)
		}
	}
	return s
})

// Forwarded lists the signals to catch and to hand on. Not among them: what cannot
// be caught, what reports a fault of the process itself, what Go's runtime uses,
// SIGCHLD, and SIGTSTP, which a program that has no command yet obeys.
func Forwarded() []os.Signal { return forwarded() }

// Ends reports whether s ends a process that does not expect it.
func Ends(s os.Signal) bool { return s != unix.SIGCONT && s != unix.SIGWINCH }

// Continues reports whether s is the one that continues a stopped process.
func Continues(s os.Signal) bool { return s == unix.SIGCONT }

// SignalNamed returns the signal with this name, such as HUP or SIGHUP, or nil.
func SignalNamed(name string) os.Signal {
	if n := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG")); n != 0 {
		return n
	}
	return nil
}

// SignalNumber returns the number and the name of s.
func SignalNumber(s os.Signal) (int, string) {
	n, ok := s.(syscall.Signal)
	if !ok {
		return 0, s.String()
	}
	if name := unix.SignalName(n); name != "" {
		return int(n), name
	}
	return int(n), "signal " + strconv.Itoa(int(n))
}
