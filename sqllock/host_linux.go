package sqllock

import (
	"context"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"unsafe"
)

const clockBoottime = 7

// hostTime is the time namespace that every process is in unless it asked for
// another one; the kernel gives it this fixed number.
const hostTime = "time:[4026531834]"

// sinceBoot returns the µs since this host was started, sleep included. Nobody can
// set that clock, and all processes of the host read the same.
func sinceBoot() (int64, bool) {
	if bootID() == 0 {
		return 0, false
	}
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano() / 1000, errno == 0
}

// bootID names the clock that sinceBoot reads: another boot is another clock, and
// so is a container whose boot time was shifted. It is 0 where that cannot be
// known, and then there is no such clock.
var bootID = sync.OnceValue(func() int64 {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	h.Write(text)
	// Kernels before 5.6 have no such link, and no time namespaces.
	if ns, err := os.Readlink("/proc/self/ns/time"); err == nil && ns != hostTime {
		h.Write([]byte(ns))
	}
	return max(1, int64(h.Sum64()>>1))
})

// fileSystem returns the kind of the file system in which path is, or "".
func fileSystem(path string) string {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return mountedAs(string(mountinfo), path)
}

// listenFile reports changes of a database file's attributes, by inotify, until ctx ends or the path leads to
// another file. A transaction that concerns other processes sets the file's modification time after it has
// committed; SQLite's own writes are not reported. The file is never opened: closing a second descriptor of a
// database file drops SQLite's locks on it.
func listenFile(ctx context.Context, path string, heard func()) error {
	file, err := os.Stat(path)
	if err != nil {
		return err
	}
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return err // this user has used up the system's instances
	}
	const mask = syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF
	if _, err := syscall.InotifyAddWatch(fd, path, mask); err != nil {
		return errors.Join(err, syscall.Close(fd))
	}
	inotify := os.NewFile(uintptr(fd), "inotify")
	defer inotify.Close()
	defer context.AfterFunc(ctx, func() { inotify.Close() })()
	var buf [4096]byte
	for {
		if now, err := os.Stat(path); err != nil || !os.SameFile(now, file) {
			return errMoved
		}
		heard()
		if _, err := inotify.Read(buf[:]); err != nil {
			return err
		}
	}
}

// utimeNow makes utimensat set the current time. That needs the right to write the file;
// any other time may be set by its owner only.
var utimeNow = syscall.Timespec{Nsec: 1<<30 - 1}

// notifyFile notifies all processes that listen to the file.
func notifyFile(path string) {
	if path != "" {
		_ = syscall.UtimesNano(path, []syscall.Timespec{utimeNow, utimeNow})
	}
}
