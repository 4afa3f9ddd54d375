//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package httplock

import (
	"errors"
	"os"
	"syscall"
)

// lockFileOnce locks a file among processes, or returns errFileLocked.
func lockFileOnce(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			return nil, errFileLocked
		}
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}

// syncDir makes the names in dir survive a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
