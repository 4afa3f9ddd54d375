//go:build unix

package sqllock

import (
	"os"
	"syscall"
)

// links counts the names that a file has.
func links(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}
