package sqllock

import (
	"context"
	"errors"
	"os"
	"syscall"
)

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
