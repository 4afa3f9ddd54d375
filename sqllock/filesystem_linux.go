package sqllock

import (
	"os"
	"path/filepath"
)

// fileSystem returns the kind of the file system in which path is, or "".
func fileSystem(path string) string {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return mountedAs(string(mountinfo), path)
}
