//go:build !linux

package main

import (
	"os"
	"runtime"
	"syscall"
)

// holdFile opens a file to look at its times. It returns nil if that is not possible, and
// on Windows, where an open file cannot be moved.
func holdFile(path string) *os.File {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	return f
}
