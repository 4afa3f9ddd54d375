//go:build unix

package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a command that runs. Its methods are called from one goroutine.
type Child struct {
	// Exited tells once how the command ended. Others of its group may live on.
	Exited <-chan Status
	// Stopped tells that the command was stopped, and by which signal.
	Stopped <-chan os.Signal
	// Changed tells that an orphan ended: ask Running again.
	Changed <-chan struct{}
	// WatchdogLost tells that the watchdog has ended, or was stopped.
	WatchdogLost <-chan LostWatchdog

	group        int
	left         func() time.Duration
	watchdog     *watchdog
	watchdogLost chan LostWatchdog
	terminal     *terminal
	thread       chan struct{} // closed to let the thread end that started the command
	gone         bool
	late         bool
	by           syscall.Signal // ended the command; set before Exited tells
}

// LostWatchdog is a watchdog that is not there any more, or was stopped.
type LostWatchdog struct{ id *watchdog }

// watchdog is the process that watches, seen from this side.
type watchdog struct {
	pid, socket int
	ended       chan struct{} // closed when it has ended and was waited for
}

// Start runs c and returns once the command itself is running, and watched. An
// *ExecError says that there is no such command, or that it cannot be executed.
func Start(c Command) (*Child, error) {
	Adopt()
	exited := make(chan Status, 1)
	stopped := make(chan os.Signal, 8)
	changed := make(chan struct{}, 1)
	k := &Child{
		Exited: exited, Stopped: stopped, Changed: changed,
		left:         c.Left,
		watchdogLost: make(chan LostWatchdog, 8),
		thread:       make(chan struct{}),
	}
	k.WatchdogLost = k.watchdogLost
	children.mu.Lock()
	children.orphanEnded = func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	children.mu.Unlock()

	socket, err := k.fork(c, func(s unix.WaitStatus) {
		switch {
		case s.Stopped():
			select {
			case stopped <- s.StopSignal():
			default:
			}
		case s.Signaled():
			k.by = s.Signal()
			exited <- Status{Signal: int(s.Signal()), Name: unix.SignalName(s.Signal())}
		default:
			exited <- Status{Code: s.ExitStatus()}
		}
	})
	if err != nil {
		close(k.thread)
		return nil, err
	}
	defer unix.Close(socket)
	if k.watchdog, err = k.startWatchdog(); err != nil {
		k.abandon()
		return nil, err
	}
	if c.Signals != nil && !signal.Ignored(unix.SIGTSTP) {
		signal.Notify(c.Signals, unix.SIGTSTP)
	}
	k.terminal = openTerminal()
	k.terminal.offer(k.group)

	// From here on the command runs. The answer is an error, or the end of the file
	// when the socket closes as the command takes the place of this program.
	answer := make([]byte, 4)
	if writeAll(socket, []byte{1}) && readFull(socket, answer) {
		<-exited
		errno := syscall.Errno(binary.NativeEndian.Uint32(answer))
		k.Close()
		return nil, &ExecError{Path: c.Path, Err: errno}
	}
	return k, nil
}

// fork starts the process that becomes the command. The thread that starts it
// stays until Close, because the kernel ties the command's life to that thread, not
// to this process.
func (k *Child) fork(c Command, notify func(unix.WaitStatus)) (socket int, err error) {
	ours, theirs, err := socketpair()
	if err != nil {
		return 0, err
	}
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		k.group, err = children.fork(func() (int, error) {
			attr := syscall.SysProcAttr{Setpgid: true}
			dieWithParent(&attr)
			return spawn(theirs, c.Env, &attr, "", c.files(), roleExec, append([]string{c.Path}, c.Args...)...)
		}, notify)
		close(done)
		<-k.thread
		// Locked still, so the thread ends with this goroutine.
	}()
	<-done
	unix.Close(theirs)
	if err != nil {
		unix.Close(ours)
		return 0, fmt.Errorf("cannot start a process: %w", err)
	}
	return ours, nil
}

// files are the descriptors of the command, by number. Those that this process was given by
// its starter stay what they are.
func (c *Command) files() []uintptr {
	files := []uintptr{0, 1, 2}
	if c.Stdout != nil {
		files[1] = c.Stdout.Fd()
	}
	if c.Extra == nil {
		return files
	}
	for n := uintptr(len(files)); n < uintptr(c.ExtraFD); n++ {
		flags, err := unix.FcntlInt(n, unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			files = append(files, ^uintptr(0)) // closed, or this process's own
		} else {
			files = append(files, n)
		}
	}
	return append(files, c.Extra.Fd())
}

// startWatchdog starts a watchdog and returns once it watches.
func (k *Child) startWatchdog() (*watchdog, error) {
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		unix.Close(ours)
		unix.Close(theirs)
		return nil, err
	}
	defer null.Close()
	w := &watchdog{socket: ours, ended: make(chan struct{})}
	w.pid, err = children.fork(func() (int, error) {
		n := null.Fd()
		return spawn(theirs, nil, &syscall.SysProcAttr{Setsid: true}, "/", []uintptr{n, n, n}, roleWatch)
	}, func(s unix.WaitStatus) {
		if !s.Stopped() {
			close(w.ended)
		}
		k.watchdogLost <- LostWatchdog{w}
	})
	unix.Close(theirs)
	if err != nil {
		unix.Close(ours)
		return nil, fmt.Errorf("cannot start the watchdog: %w", err)
	}
	ok := w.send(opGroup, int64(k.group)) && w.send(opDeadline, k.deadline())
	if !ok || !answers(ours, now()+int64(10*time.Second)) || !readFull(ours, make([]byte, 1)) {
		_ = unix.Kill(w.pid, unix.SIGKILL)
		unix.Close(ours)
		return nil, errors.New("the watchdog does not answer")
	}
	return w, nil
}

// answers waits until fd can be read, and reports false if the clock says at first. A
// signal may come in between: the ends of children, and Go's runtime sends its own.
func answers(fd int, at int64) bool {
	for now() < at {
		if until(fd, at) {
			return true
		}
	}
	return until(fd, at)
}

// send never waits: a watchdog that does not read is stopped, and WatchdogLost says so.
func (w *watchdog) send(op, value int64) bool {
	b := binary.NativeEndian.AppendUint64(nil, uint64(op))
	b = binary.NativeEndian.AppendUint64(b, uint64(value))
	_, err := unix.SendmsgN(w.socket, b, nil, nil, unix.MSG_DONTWAIT)
	return err == nil
}

// deadline reads the clock before it asks how much is left: a pause between the
// two makes the deadline too early, never too late.
func (k *Child) deadline() int64 {
	if k.left == nil {
		return never
	}
	from := now()
	left := int64(k.left())
	if left > never-from {
		return never
	}
	return from + left
}

// Extend tells the watchdog how much is left now. Call it whenever that grew.
func (k *Child) Extend() {
	if k.watchdog != nil {
		k.watchdog.send(opDeadline, k.deadline())
	}
}

// Late reports whether the watchdog killed the group because the deadline had
// passed. It says so before it kills, so ask after Exited.
func (k *Child) Late() bool {
	if k.watchdog != nil && !k.late {
		var b [1]byte
		n, _, err := unix.Recvfrom(k.watchdog.socket, b[:], unix.MSG_DONTWAIT)
		k.late = err == nil && n == 1 && b[0] == sayLate
	}
	return k.late
}

// ReplaceWatchdog starts another watchdog in place of the lost one. It does
// nothing if that one was replaced already.
func (k *Child) ReplaceWatchdog(lost LostWatchdog) error {
	if k.watchdog == nil || lost.id != k.watchdog || k.gone {
		return nil
	}
	select {
	case <-k.watchdog.ended:
	default:
		// It is only stopped. It must not wake up later with a deadline of long ago.
		_ = unix.Kill(k.watchdog.pid, unix.SIGKILL)
	}
	unix.Close(k.watchdog.socket)
	next, err := k.startWatchdog()
	k.watchdog = next
	return err
}

// Signal sends s to every process of the group.
func (k *Child) Signal(s os.Signal) {
	n, ok := s.(syscall.Signal)
	if !ok || k.gone {
		return
	}
	if n == unix.SIGTSTP && k.terminal != nil {
		// What stopped already, for want of the terminal, does not stop by this.
		k.terminal.asked = true
	}
	_ = unix.Kill(-k.group, n)
}

// Terminate asks the group to end. What is stopped is continued, or it would not
// hear of it.
func (k *Child) Terminate() {
	k.Signal(unix.SIGTERM)
	k.Signal(unix.SIGCONT)
}

// Kill ends every process of the group.
func (k *Child) Kill() { k.Signal(unix.SIGKILL) }

// Running reports whether any process of the group lives. Ask again until it says
// no; the command itself may have ended long before.
func (k *Child) Running() bool {
	if !k.gone && unix.Kill(-k.group, 0) == unix.ESRCH {
		k.gone = true
	}
	return !k.gone
}

// OnlyZombies reports whether nothing of the group can run any more, though it
// still seems to be there. It looks at every process of the system.
func (k *Child) OnlyZombies() bool {
	if !k.gone && onlyZombies(k.group) {
		k.gone = true
	}
	return k.gone
}

// Close gives the terminal back and lets the watchdog go. Call it when the group
// is gone, and before anybody else may have what the group was working on.
func (k *Child) Close() {
	k.Late() // the last chance to hear of it
	if k.watchdog != nil {
		k.watchdog.send(opDone, 0)
		unix.Close(k.watchdog.socket)
		// Waited for, it leaves no zombie to a process 1 that does not care for them.
		select {
		case <-k.watchdog.ended:
		case <-time.After(time.Second): // it was stopped
		}
		k.watchdog = nil
	}
	k.terminal.restore(k.group, k.by)
	close(k.thread)
}

// abandon ends a command that has not run yet.
func (k *Child) abandon() {
	_ = unix.Kill(-k.group, unix.SIGKILL)
	close(k.thread)
}

// spawn starts this program in a hidden role. theirs, its end of a socket, keeps
// its number, which is above those that a shell hands down.
func spawn(
	theirs int, env []string, attr *syscall.SysProcAttr, dir string, files []uintptr, role string, args ...string,
) (int, error) {
	exe, err := Self()
	if err != nil {
		return 0, err
	}
	// The copy is open across exec, so it exists only while nothing else is forked:
	// children.mu is held.
	given, err := unix.FcntlInt(uintptr(theirs), unix.F_DUPFD, 10)
	if err != nil {
		return 0, err
	}
	defer unix.Close(given)
	if env == nil {
		env = []string{}
	}
	argv := append([]string{"fencelock", role, strconv.Itoa(given)}, args...)
	return syscall.ForkExec(exe, argv, &syscall.ProcAttr{Dir: dir, Env: env, Files: files, Sys: attr})
}

func socketpair() (ours, theirs int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, 0, err
	}
	unix.CloseOnExec(pair[0])
	unix.CloseOnExec(pair[1])
	return pair[0], pair[1], nil
}

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
