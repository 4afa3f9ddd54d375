package keeper

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From sys/fcntl.h: locks of the open file.
const (
	setLock     = 90
	setLockWait = 91
)

// openAnew opens the file of fd once more, by the path that the kernel knows.
func openAnew(fd int, st *unix.Stat_t) (*os.File, error) {
	var path [unix.PathMax]byte
	if _, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETPATH, uintptr(unsafe.Pointer(&path[0]))); errno != 0 {
		return nil, errno
	}
	f, err := os.OpenFile(unix.ByteSliceToString(path[:]), os.O_WRONLY, 0)
	if err != nil {
		return nil, err.(*os.PathError).Err
	}
	var again unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &again); err != nil || again.Dev != st.Dev || again.Ino != st.Ino {
		f.Close()
		return nil, errors.New("it was moved or removed")
	}
	return f, nil
}
