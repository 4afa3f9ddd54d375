package sqllock

import (
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
)

// SQLiteDSN returns a data source name for a file of locks, for the driver
// modernc.org/sqlite: write-ahead logging, synchronous NORMAL, and no busy timeout,
// for the reasons given above. The path may hold any byte; the file is created at
// the first use, its folder is not. Symlinks are followed now, and not again by each
// connection of a pool: a link that leads elsewhere later would give one pool two files.
func SQLiteDSN(path string) string {
	p := filepath.ToSlash(followLinks(path))
	if runtime.GOOS == "windows" && filepath.VolumeName(path) != "" && !strings.HasPrefix(p, "/") {
		p = "/" + p // file:/C:/dir/locks.db
	}
	return "file:" + (&url.URL{Path: p}).EscapedPath() + "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
}

// followLinks returns the path without symlinks, as far as the file or its folder is there.
func followLinks(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(folder, filepath.Base(path))
	}
	return path
}
