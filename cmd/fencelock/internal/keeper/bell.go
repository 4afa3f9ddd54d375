//go:build unix

// Package keeper keeps a lock for a shell: a process in the background that holds
// on until a file descriptor of the shell is closed everywhere.
package keeper

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A bell rings when the last copy of an open file is closed. The kernel tells nobody
// of that, but it drops the file's locks then: so a byte far behind the end of the
// file is locked through the open file, and the keeper, who has opened the same file
// anew, waits for that byte. The byte is drawn at random, so any number of bells can
// share a file. These are the locks of the open file, not of the process: they stay
// for as long as anybody has the file open.
type Bell struct {
	fd     int      // the shell's
	anew   *os.File // the same file, opened again
	offset int64
}

// NewBell makes a bell for the open file fd.
func NewBell(fd int) (*Bell, error) {
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
	// The keeper must not inherit it, or it would wait for itself.
	unix.CloseOnExec(fd)
	anew, err := openAnew(fd, &st)
	if err != nil {
		return nil, fmt.Errorf("its file cannot be opened again: %w%s", err, how)
	}
	var b [8]byte
	rand.Read(b[:])
	k := &Bell{fd: fd, anew: anew, offset: 1<<40 + int64(binary.NativeEndian.Uint64(b[:])>>3)}
	if err := lockByte(fd, setLock, k.offset); err != nil {
		anew.Close()
		return nil, fmt.Errorf("its file cannot be locked: %w%s", err, how)
	}
	// Where locks belong to the process, or are not kept at all, this one succeeds, and
	// the bell would ring at once or never.
	if lockByte(int(anew.Fd()), setLock, k.offset) == nil {
		anew.Close()
		return nil, errors.New("its file system does not keep the locks of open files apart" + how)
	}
	return k, nil
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

// shared reports whether fd is the very open file that the bell hangs on. Then
// whoever keeps fd open keeps it from ringing.
func (b *Bell) shared(fd int) bool {
	var mine, other unix.Stat_t
	if unix.Fstat(b.fd, &mine) != nil || unix.Fstat(fd, &other) != nil || mine.Dev != other.Dev || mine.Ino != other.Ino {
		return false
	}
	return lockByte(fd, setLock, b.offset) == nil
}
