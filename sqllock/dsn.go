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
// the first use, its folder is not.
func SQLiteDSN(path string) string {
	p := filepath.ToSlash(path)
	if runtime.GOOS == "windows" && filepath.VolumeName(path) != "" && !strings.HasPrefix(p, "/") {
		p = "/" + p // file:/C:/dir/locks.db
	}
	return "file:" + (&url.URL{Path: p}).EscapedPath() + "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
}
