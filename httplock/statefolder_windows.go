package httplock

import (
	"errors"
	"syscall"
)

// sharingViolation is ERROR_SHARING_VIOLATION: another process has the file open.
const sharingViolation = syscall.Errno(32)

// lockFileOnce locks a file among processes, or returns errFileLocked: who has the file open
// shares it with nobody.
func lockFileOnce(path string) (unlock func(), err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	file, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, sharingViolation) {
		return nil, errFileLocked
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = syscall.CloseHandle(file) }, nil
}

// syncDir does nothing: the file system's journal keeps the names.
func syncDir(string) error { return nil }
