//go:build unix

package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
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
	// Changed tells that other processes ended: ask Running and Empty again.
	Changed <-chan struct{}
	// WatchdogLost tells that the watchdog was killed.
	WatchdogLost <-chan LostWatchdog

	group        int
	left         func() time.Duration
	watchdog     *watchdog
	watchdogLost chan LostWatchdog
	orphaned     bool  // the watchdog was killed: this process is the parent of the command now
	strangers    []int // children of this process from before: it took the place of their parent by exec
	terminal     *terminal
	exited       chan Status
	stopped      chan os.Signal
	changed      chan struct{}
	noGroup      atomic.Bool // no process of the group is left
	nothing      atomic.Bool // no descendant is left
	late         atomic.Int64
	by           syscall.Signal // ended the command; set before Exited tells
}

// LostWatchdog is a watchdog that is not there any more.
type LostWatchdog struct{ id *watchdog }

// watchdog is the process that watches, seen from this side.
type watchdog struct {
	pid, socket int
	ended       chan struct{} // closed when it has ended and was waited for
	heard       chan struct{} // closed when all that it said was read
}

// Start runs c and returns once the command itself is running, and watched. An
// *ExecError says that there is no such command, or that it cannot be executed.
func Start(c Command) (*Child, error) {
	Adopt()
	k := &Child{
		left:         c.Left,
		watchdogLost: make(chan LostWatchdog, 8),
		exited:       make(chan Status, 1),
		stopped:      make(chan os.Signal, 8),
		changed:      make(chan struct{}, 1),
	}
	k.Exited, k.Stopped, k.Changed, k.WatchdogLost = k.exited, k.stopped, k.changed, k.watchdogLost
	children.mu.Lock()
	children.orphanEnded = k.tellChange
	children.mu.Unlock()

	k.strangers = childrenOf(os.Getpid())
	gate, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer unix.Close(gate)
	k.watchdog, err = k.startWatchdog(c.files(), theirs)
	unix.Close(theirs)
	if err != nil {
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
	if writeAll(gate, c.encode(k.group)) && readFull(gate, answer) {
		<-k.exited
		errno := syscall.Errno(binary.NativeEndian.Uint32(answer))
		k.Close()
		return nil, &ExecError{Path: c.Path, Err: errno}
	}
	return k, nil
}

// ended hands on how the command ended, or that it was stopped.
func (k *Child) ended(s unix.WaitStatus) {
	switch {
	case s.Stopped():
		select {
		case k.stopped <- s.StopSignal():
		default:
		}
		return
	case s.Signaled():
		k.by = s.Signal()
		k.exited <- Status{Signal: int(s.Signal()), Name: unix.SignalName(s.Signal())}
	default:
		k.exited <- Status{Code: s.ExitStatus()}
	}
	k.tellChange()
}

func (k *Child) tellChange() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// encode is what the process that becomes the command reads: it is not on the command line
// of any process but the command's own.
func (c *Command) encode(pid int) []byte {
	env := slices.Clone(c.Env)
	for i, kv := range env {
		// systemd names the process that these are for, and any other one ignores them. They
		// are for the command: sockets that are open, and how often to say that it works.
		name, value, _ := strings.Cut(kv, "=")
		if (name == "LISTEN_PID" || name == "WATCHDOG_PID") && value == strconv.Itoa(os.Getpid()) {
			env[i] = name + "=" + strconv.Itoa(pid)
		}
	}
	var b []byte
	for _, list := range [][]string{{c.Path}, c.Args, env} {
		b = binary.NativeEndian.AppendUint32(b, uint32(len(list)))
		for _, text := range list {
			b = binary.NativeEndian.AppendUint32(b, uint32(len(text)))
			b = append(b, text...)
		}
	}
	return b
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

// startWatchdog starts a watchdog and returns once it watches. With a gate, the watchdog
// starts the process that becomes the command. Without, it watches the group of a
// watchdog that was killed.
func (k *Child) startWatchdog(files []uintptr, gate int) (*watchdog, error) {
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	w := &watchdog{socket: ours, ended: make(chan struct{}), heard: make(chan struct{})}
	w.pid, err = children.fork(func() (int, error) {
		// A group of its own: the signals of the terminal do not reach it. It stays in the
		// session, or the job control of the shell would end at its child, the command.
		return spawn(&syscall.SysProcAttr{Setpgid: true}, files, roleWatch, theirs, gate)
	}, func(s unix.WaitStatus) {
		if s.Stopped() {
			// What was sent to it meanwhile is read before it looks at the clock.
			_ = unix.Kill(w.pid, unix.SIGCONT)
			return
		}
		close(w.ended)
		k.watchdogLost <- LostWatchdog{w}
	})
	unix.Close(theirs)
	if err != nil {
		unix.Close(ours)
		return nil, fmt.Errorf("cannot start the watchdog: %w", err)
	}
	ok := true
	if gate < 0 {
		ok = w.send(opGroup, int64(k.group))
	}
	ok = ok && w.send(opDeadline, k.deadline()) && answers(ours, now()+int64(10*time.Second))
	op, value := int64(0), int64(0)
	if ok {
		op, value, ok = receive(ours)
	}
	if !ok || op != sayReady {
		_ = unix.Kill(w.pid, unix.SIGKILL)
		unix.Close(ours)
		if op == sayFailed {
			return nil, fmt.Errorf("cannot start a process: %w", syscall.Errno(value))
		}
		return nil, errors.New("the watchdog does not answer")
	}
	if gate >= 0 {
		// If the watchdog is killed, the command becomes a child of this process.
		k.group = int(value)
		children.expect(k.group, k.ended)
	}
	go k.listen(w)
	return w, nil
}

// listen hands on what the watchdog says, until it ends.
func (k *Child) listen(w *watchdog) {
	defer close(w.heard)
	defer unix.Close(w.socket)
	for {
		op, value, ok := receive(w.socket)
		if !ok {
			return
		}
		switch op {
		case sayLate:
			k.late.Store(value)
		case sayEnded:
			if status := unix.WaitStatus(value); status.Stopped() || children.forget(k.group) {
				k.ended(status)
			}
		case sayNoGroup:
			k.noGroup.Store(true)
			k.tellChange()
		case sayNothing:
			k.noGroup.Store(true)
			k.nothing.Store(true)
			k.tellChange()
		}
	}
}

// answers waits until fd can be read, and reports false if the clock says at first. A
// signal may come in between: the ends of children, and Go's runtime sends its own.
func answers(fd int, at int64) bool {
	for now() < at {
		if until(at, fd)[0] {
			return true
		}
	}
	return until(at, fd)[0]
}

// send never waits for a watchdog that does not read.
func (w *watchdog) send(op, value int64) bool {
	_, err := unix.SendmsgN(w.socket, message(op, value), nil, nil, unix.MSG_DONTWAIT)
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

// Late returns how long after the deadline the watchdog killed the command, or 0 if it did
// not. It says so before it kills, so ask after Exited.
func (k *Child) Late() time.Duration { return time.Duration(k.late.Load()) }

// ReplaceWatchdog starts another watchdog in place of the lost one. The new one is not a
// parent of the command: if this process is killed, it reaches only the group. It does
// nothing if the lost one was replaced already.
func (k *Child) ReplaceWatchdog(lost LostWatchdog) error {
	if k.watchdog == nil || lost.id != k.watchdog || k.nothing.Load() {
		return nil
	}
	<-k.watchdog.heard
	k.watchdog, k.orphaned = nil, true
	if unix.Kill(k.group, 0) == unix.ESRCH && children.forget(k.group) {
		// The command ended, and its watchdog was killed before it could say how.
		k.exited <- Status{Signal: int(unix.SIGKILL), Name: unix.SignalName(unix.SIGKILL)}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	n := null.Fd()
	k.watchdog, err = k.startWatchdog([]uintptr{n, n, n}, -1)
	return err
}

// Signal sends s to every process of the group.
func (k *Child) Signal(s os.Signal) {
	n, ok := s.(syscall.Signal)
	if !ok || k.noGroup.Load() {
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

// Kill ends every process of the group and, on Linux, every other descendant. Those that
// are started meanwhile need another call.
func (k *Child) Kill() {
	k.Signal(unix.SIGKILL)
	k.SignalOthers(unix.SIGKILL, true)
}

// Running reports whether any process of the group lives. Ask again until it says
// no; the command itself may have ended long before.
func (k *Child) Running() bool {
	if k.orphaned && !k.noGroup.Load() && groupGone(k.group) {
		k.noGroup.Store(true)
	}
	return !k.noGroup.Load()
}

// Empty reports whether no descendant of the command lives, in whatever group or session.
// Where the system does not tell, it reports that of the group.
func (k *Child) Empty() bool {
	if k.orphaned && !k.nothing.Load() && !k.Running() && len(k.descendants()) == 0 {
		k.nothing.Store(true)
	}
	return k.nothing.Load()
}

// Close gives the terminal back and lets the watchdog go. Call it when the group
// is gone, and before anybody else may have what the group was working on.
func (k *Child) Close() {
	if k.watchdog != nil {
		k.watchdog.send(opDone, 0)
		// Waited for, it leaves no zombie to a process 1 that does not care for them.
		select {
		case <-k.watchdog.ended:
		case <-time.After(time.Second): // it was stopped
			_ = unix.Kill(k.watchdog.pid, unix.SIGKILL)
		}
		_ = unix.Shutdown(k.watchdog.socket, unix.SHUT_RDWR)
		<-k.watchdog.heard
		k.watchdog = nil
	}
	k.terminal.restore(k.group, k.by)
}

// spawn starts this program in a hidden role. The sockets, its ends of them, get numbers
// above those that a shell hands down. A socket of -1 is none.
func spawn(attr *syscall.SysProcAttr, files []uintptr, role string, sockets ...int) (int, error) {
	exe, err := Self()
	if err != nil {
		return 0, err
	}
	// Not a name that "pkill -9 -f fencelock" finds: the watchdog must outlive that.
	argv := []string{watchdogName, role}
	for _, fd := range sockets {
		if fd >= 0 {
			// The copy is open across exec, so it exists only while nothing else is forked:
			// children.mu is held.
			if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 10); err != nil {
				return 0, err
			}
			defer unix.Close(fd)
		}
		argv = append(argv, strconv.Itoa(fd))
	}
	return syscall.ForkExec(exe, argv, &syscall.ProcAttr{Env: []string{}, Files: files, Sys: attr})
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
