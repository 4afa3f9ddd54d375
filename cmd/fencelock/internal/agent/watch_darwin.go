package agent

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

// path is where the kernel writes the path of a file. It is no variable of a function,
// because those may move while the kernel is at it.
var path [unix.PathMax]byte

// openAnew opens the file of fd once more, by the path that the kernel knows.
func openAnew(fd int, st *unix.Stat_t) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPATH, int(uintptr(unsafe.Pointer(&path[0])))); err != nil {
		return nil, err
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
