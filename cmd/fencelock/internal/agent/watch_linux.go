package agent

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	setLock     = unix.F_OFD_SETLK
	setLockWait = unix.F_OFD_SETLKW
)

// openAnew opens the file of fd once more, also if it was removed.
func openAnew(fd int, _ *unix.Stat_t) (*os.File, error) {
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_WRONLY, 0)
	if err != nil {
		return nil, err.(*os.PathError).Err
	}
	return f, nil
}
