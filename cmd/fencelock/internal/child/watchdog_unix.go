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

// What the parent tells its watchdog: sixteen bytes, an operation and a number.
const (
	opGroup    = 1 + iota // watch this process group
	opDeadline            // it may live until then, by the clock of now
	opDone                // it is gone
)

// What the watchdog answers, a byte each.
const (
	sayReady = 1 + iota // once: it watches
	sayLate             // it is about to kill the group, because the deadline passed
)

// Main plays the hidden roles: it returns the exit code and true if this process
// was started for one. Call it before anything else in main.
func Main() (code int, mine bool) {
	if len(os.Args) < 3 {
		return 0, false
	}
	role := os.Args[1]
	if role != roleWatch && role != roleExec {
		return 0, false
	}
	fd, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return 0, false
	}
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return 0, false // a person typed it
	}
	unix.CloseOnExec(fd)
	if role == roleExec && len(os.Args) > 4 {
		return execute(fd, os.Args[3], os.Args[4:]), true
	}
	return watch(fd), true
}

// execute becomes the command once the parent says so. The parent dying first is a
// no: then nothing has run.
func execute(fd int, path string, argv []string) int {
	if !readFull(fd, make([]byte, 1)) {
		return 125
	}
	err := syscall.Exec(path, argv, os.Environ())
	errno, ok := err.(syscall.Errno)
	if !ok {
		errno = syscall.EINVAL
	}
	writeAll(fd, binary.NativeEndian.AppendUint32(nil, uint32(errno)))
	return 126
}

// watch is the watchdog. It lives in a session of its own, so the terminal's
// signals do not reach it, and it keeps nothing open that its starter had open: a
// pipe to it would otherwise seem in use after the command is gone.
func watch(fd int) int {
	// Not a name that "pkill -9 fencelock" finds: it must outlive that.
	nameProcess("fl-watchdog")
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGALRM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	CloseInherited(fd)
	_ = os.Chdir("/")

	group, deadline, ready := 0, int64(never), false
	message := make([]byte, 16)
	for {
		if until(fd, deadline) {
			if !readFull(fd, message) {
				end(group) // the parent is gone
				return 0
			}
			value := int64(binary.NativeEndian.Uint64(message[8:]))
			switch binary.NativeEndian.Uint64(message) {
			case opGroup:
				group = int(value)
			case opDeadline:
				deadline = value
				if !ready { // the command's first instruction waits for this
					ready = writeAll(fd, []byte{sayReady})
				}
			case opDone:
				return 0
			}
			continue
		}
		// A newer deadline that came in time is read above before this is asked.
		if now() >= deadline {
			writeAll(fd, []byte{sayLate})
			end(group)
			return 0
		}
	}
}

// end kills every process of the group, and stays until they are gone or nothing
// more can be done.
func end(group int) {
	if group <= 1 {
		return
	}
	for range 200 {
		if unix.Kill(-group, unix.SIGKILL) == unix.ESRCH || onlyZombies(group) {
			return
		}
		time.Sleep(10 * time.Millisecond)
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
func untilTimeout(fd int, at int64) bool {
	const most = int64(time.Second)
	wait := most
	if at != never {
		wait = min(max(at-now(), 0), most)
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int((wait+int64(time.Millisecond)-1)/int64(time.Millisecond)))
	return err == nil && n > 0
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
