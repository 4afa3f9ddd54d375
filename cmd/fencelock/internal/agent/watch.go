//go:build unix

// Package agent runs a process in the background that holds a lock for a shell, until a
// file descriptor of the shell is closed everywhere.
package agent

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Watch tells when the last copy of an open file is closed.
//
// The kernel announces no such event, but it drops the locks of an open file then. So a
// byte far behind the end of the file is locked through the open file. The agent opens
// the same file again and waits for that byte. The offset is random, so any number of
// watches can share a file. The locks belong to the open file, not to a process: they
// stay as long as any process has the file open.
type Watch struct {
	fd     int      // the shell's
	anew   *os.File // the same file, opened again
	offset int64    // of the locked byte
}

// NewWatch watches the open file fd.
func NewWatch(fd int) (*Watch, error) {
	const how = "; put 9>>FILE on the block, with a FILE on a local disk"
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.New("it is not open" + how)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("it is not a file, so nobody learns when it is closed" + how)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY {
		return nil, errors.New("it is open for reading only" + how)
	}
	// The agent must not inherit it, or it would wait for itself.
	unix.CloseOnExec(fd)
	anew, err := openAnew(fd, &st)
	if err != nil {
		return nil, fmt.Errorf("its file cannot be opened again: %w%s", err, how)
	}
	var b [8]byte
	rand.Read(b[:])
	w := &Watch{fd: fd, anew: anew, offset: 1<<40 + int64(binary.NativeEndian.Uint64(b[:])>>3)}
	if err := lockByte(fd, setLock, w.offset); err != nil {
		anew.Close()
		return nil, fmt.Errorf("its file cannot be locked: %w%s", err, how)
	}
	// Where locks belong to the process, or are not kept at all, this one succeeds. The
	// watch would then tell at once, or never.
	if lockByte(int(anew.Fd()), setLock, w.offset) == nil {
		anew.Close()
		return nil, errors.New("its file system does not keep the locks of open files apart" + how)
	}
	return w, nil
}

// wait returns when the last copy of the shell's file is closed. It blocks a thread.
func wait(fd int, offset int64) error {
	for {
		if err := lockByte(fd, setLockWait, offset); err != unix.EINTR {
			return err
		}
	}
}

func lockByte(fd, op int, offset int64) error {
	return unix.FcntlFlock(uintptr(fd), op, &unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: offset, Len: 1})
}

// same reports whether fd is the very open file that is watched. A process that keeps fd
// open keeps the watch from telling.
func (w *Watch) same(fd int) bool {
	var mine, other unix.Stat_t
	if unix.Fstat(w.fd, &mine) != nil || unix.Fstat(fd, &other) != nil {
		return false
	}
	if mine.Dev != other.Dev || mine.Ino != other.Ino {
		return false
	}
	return lockByte(fd, setLock, w.offset) == nil
}
