//go:build unix

package child

import (
	"encoding/binary"
	"math"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The hidden roles of this program. Their only argument of their own is the number
// of the socket to the process that started them.
const (
	roleWatch = "__watchdog"
	roleExec  = "__exec"
)

// never is a time that does not come.
const never = math.MaxInt64

// watchdogName is what ps shows of the watchdog.
const watchdogName = "fl-watchdog"

// What the parent tells its watchdog: sixteen bytes, an operation and a number.
const (
	opGroup    = 1 + iota // watch this process group, which another watchdog started
	opDeadline            // the command may live until then, by the clock of now
	opDone                // what is left may live on
)

// What the watchdog says, in the same form.
const (
	sayReady   = 1 + iota // once: it watches, and this is the group
	sayFailed             // instead: the system's error
	sayLate               // it is about to kill, this long after the deadline
	sayEnded              // how the command ended, or that it was stopped: a wait status
	sayNoGroup            // no process of the group is left
	sayNothing            // no descendant is left
)

func message(op, value int64) []byte {
	b := binary.NativeEndian.AppendUint64(nil, uint64(op))
	return binary.NativeEndian.AppendUint64(b, uint64(value))
}

func receive(fd int) (op, value int64, ok bool) {
	b := make([]byte, 16)
	ok = readFull(fd, b)
	return int64(binary.NativeEndian.Uint64(b)), int64(binary.NativeEndian.Uint64(b[8:])), ok
}

// Main plays the hidden roles: it returns the exit code and true if this process
// was started for one. Call it before anything else in main.
func Main() (code int, mine bool) {
	if len(os.Args) < 3 || os.Args[1] != roleWatch && os.Args[1] != roleExec {
		return 0, false
	}
	sockets := make([]int, 0, 2)
	for _, text := range os.Args[2:] {
		fd, err := strconv.Atoi(text)
		if err != nil {
			return 0, false
		}
		sockets = append(sockets, fd)
	}
	kind, err := unix.GetsockoptInt(sockets[0], unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return 0, false // a person typed it
	}
	if os.Args[1] == roleExec {
		unix.CloseOnExec(sockets[0])
		return execute(sockets[0]), true
	}
	if len(sockets) != 2 {
		return 0, false
	}
	return watch(sockets[0], sockets[1]), true
}

// execute becomes the command once the parent says so. The parent dying first is a
// no: then nothing has run.
func execute(fd int) int {
	var lists [3][]string
	for i := range lists {
		n, ok := readNumber(fd)
		for ; ok && n > 0; n-- {
			var size uint32
			if size, ok = readNumber(fd); !ok {
				break
			}
			text := make([]byte, size)
			ok = readFull(fd, text)
			lists[i] = append(lists[i], string(text))
		}
		if !ok {
			return 125
		}
	}
	err := syscall.Exec(lists[0][0], lists[1], lists[2])
	errno, ok := err.(syscall.Errno)
	if !ok {
		errno = syscall.EINVAL
	}
	writeAll(fd, binary.NativeEndian.AppendUint32(nil, uint32(errno)))
	return 126
}

func readNumber(fd int) (uint32, bool) {
	b := make([]byte, 4)
	ok := readFull(fd, b)
	return binary.NativeEndian.Uint32(b), ok
}

// watcher is the watchdog. One goroutine owns it.
type watcher struct {
	fd       int // the socket to the parent; -1: the parent is gone
	wake     int // can be read when a child has ended or was stopped
	parent   bool
	group    int
	command  bool // it has ended, or another watchdog started it
	ended    time.Time
	deadline int64
	ready    bool
	killing  time.Time // since when everything is being killed; zero: not
	noGroup  bool
	nothing  bool
}

// watch is the watchdog. The command is its child, and on Linux all orphans of the command
// become its children, in whatever session they are. So it knows what is left also when
// its parent was killed. It lives in a group of its own, so the terminal's signals do not
// reach it, and it keeps nothing open that its starter had open: a pipe to it would
// otherwise seem in use after the command is gone.
func watch(fd, gate int) int {
	unix.CloseOnExec(fd)
	w := &watcher{fd: fd, deadline: never, command: gate < 0}
	var err error
	if w.wake, err = wakeUp(); err == nil && gate >= 0 {
		w.parent = true
		unix.CloseOnExec(gate)
		becomeSubreaper()
		w.group, err = spawn(&syscall.SysProcAttr{Setpgid: true}, []uintptr{0, 1, 2}, roleExec, gate)
		unix.Close(gate)
	}
	if err != nil {
		errno, ok := err.(syscall.Errno)
		if !ok {
			errno = syscall.EINVAL
		}
		w.say(sayFailed, int64(errno))
		return 1
	}
	// Not a name that "pkill -9 fencelock" finds: it must outlive that.
	nameProcess(watchdogName)
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGALRM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for n := range 3 {
			_ = duplicate(null, n)
		}
	}
	CloseInherited(fd)
	_ = os.Chdir("/")
	for !w.step() {
	}
	return 0
}

// wakeUp returns a descriptor that can be read when a child has ended or was stopped.
func wakeUp() (int, error) {
	read, write, err := socketpair()
	if err != nil {
		return 0, err
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGCHLD)
	go func() {
		for range c {
			_, _ = unix.Write(write, []byte{0})
		}
	}()
	return read, nil
}

// step waits for what comes next and does what is due. It reports whether the watchdog may
// end.
func (w *watcher) step() (done bool) {
	at := w.deadline
	if pause, ok := w.pause(); ok {
		at = min(at, now()+int64(pause))
	}
	can := until(at, w.wake, w.fd)
	if can[0] {
		_, _ = unix.Read(w.wake, make([]byte, 64))
	}
	switch {
	case can[1]:
		// A newer deadline that came in time is read before the clock is asked.
		if w.hear() {
			return true
		}
	case now() >= w.deadline:
		w.say(sayLate, max(now()-w.deadline, 1))
		w.deadline = never
		w.kill()
	}
	w.reap()
	if !w.killing.IsZero() && !w.nothing {
		w.kill()
		w.reap()
	}
	w.look()
	return w.fd < 0 && w.nothing
}

// pause is how long nothing needs to be looked at, if no child ends.
func (w *watcher) pause() (time.Duration, bool) {
	switch {
	case w.nothing:
		return 0, false
	case !w.killing.IsZero():
		// What is started meanwhile has to be killed, too.
		return min(time.Since(w.killing)/16+time.Millisecond, time.Second), true
	case w.command && !w.noGroup:
		// No signal tells of the end of the last process of a group that is another's child.
		return min(time.Since(w.ended)/4+5*time.Millisecond, time.Second), true
	}
	return 0, false
}

// hear does what the parent says, and reports whether that is to end.
func (w *watcher) hear() (done bool) {
	op, value, ok := receive(w.fd)
	switch {
	case !ok: // the parent is gone
		unix.Close(w.fd)
		w.fd, w.deadline = -1, never
		w.kill()
	case op == opGroup:
		w.group, w.ended = int(value), time.Now()
	case op == opDeadline:
		w.deadline = value
		if !w.ready { // the command's first instruction waits for this
			w.ready = true
			w.say(sayReady, int64(w.group))
		}
	case op == opDone:
		return true
	}
	return false
}

func (w *watcher) say(op, value int64) {
	if w.fd >= 0 {
		writeAll(w.fd, message(op, value))
	}
}

// kill ends every process of the group, and every other descendant. What is started while
// it looks is left to the next call.
func (w *watcher) kill() {
	if w.killing.IsZero() {
		w.killing = time.Now()
	}
	if w.group > 1 && !w.noGroup {
		_ = unix.Kill(-w.group, unix.SIGKILL)
	}
	signalAll(descendants(os.Getpid()), unix.SIGKILL, w.group)
}

// reap waits for the children that have ended.
func (w *watcher) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if pid != w.group {
			continue
		}
		if !status.Stopped() {
			w.command, w.ended = true, time.Now()
		}
		w.say(sayEnded, int64(status))
	}
}

// look says what is left, once each.
func (w *watcher) look() {
	if !w.command {
		return
	}
	if !w.noGroup && w.group > 1 && groupGone(w.group) {
		w.noGroup = true
		w.say(sayNoGroup, 0)
	}
	if !w.nothing && w.noGroup && (!w.parent || childless()) {
		w.nothing = true
		if w.parent {
			w.say(sayNothing, 0)
		}
	}
}

// signalAll signals the processes that are not of the group, which has got its signal.
func signalAll(pids []int, s syscall.Signal, group int) {
	for _, pid := range pids {
		if g, err := unix.Getpgid(pid); err == nil && g != group {
			_ = unix.Kill(pid, s)
		}
	}
}

// CloseInherited closes every file that this process was given when it was
// started, but stdin, stdout, stderr and keep. Files that it opened itself are
// marked to be closed on exec, which those it was given cannot be.
func CloseInherited(keep ...int) {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
next:
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		for _, k := range keep {
			if fd == k {
				continue next
			}
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// untilTimeout is until with poll's own timeout. That stands still while the
// machine sleeps, so it is kept short.
func untilTimeout(at int64, fds ...int) []bool {
	const most = int64(time.Second)
	wait := most
	if at != never {
		wait = min(max(at-now(), 0), most)
	}
	return poll(fds, int((wait+int64(time.Millisecond)-1)/int64(time.Millisecond)))
}

// poll reports which of fds can be read. One that is negative never can.
func poll(fds []int, milliseconds int) []bool {
	wait := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		wait[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	can := make([]bool, len(fds))
	if _, err := unix.Poll(wait, milliseconds); err == nil {
		for i := range wait {
			can[i] = wait[i].Revents != 0
		}
	}
	return can
}

func readFull(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

func writeAll(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}
