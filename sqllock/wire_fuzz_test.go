package sqllock

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzPrefix: a prefix of table names that is taken is an identifier everywhere, for it
// becomes part of SQL text.
func FuzzPrefix(f *testing.F) {
	for _, p := range []string{"", "fencelock_", "a", "1a", "a b", "a;--", `a"`, "a`", "a\n", "é", "sqlite_x", "SQLITE_", "_", strings.Repeat("a", 33)} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		prefix, err := tablePrefix(p)
		if err != nil {
			return
		}
		if strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || len(prefix) > 32 {
			t.Errorf("the prefix %q is taken", p)
		}
		for _, d := range []Dialect{SQLite, Postgres, MySQL} {
			text, err := Schema(d, &Options{Prefix: p})
			if err != nil || !strings.Contains(text, prefix) {
				t.Errorf("the %v schema of %q: %v", d, p, err)
			}
		}
	})
}

// FuzzSQLiteDSN: a path of any bytes is the path that the driver sees, and none of its
// settings.
func FuzzSQLiteDSN(f *testing.F) {
	for _, p := range []string{"/var/lib/locks.db", "/a b?c=d&_pragma=x#y", "/%41", "/é/\xff", "C:/x", "x"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if path == "" || strings.Contains(path, `\`) {
			return // another separator on Windows
		}
		name, query, ok := strings.Cut(strings.TrimPrefix(SQLiteDSN(path), "file:"), "?")
		if got, err := url.PathUnescape(name); !ok || err != nil || got != path {
			t.Errorf("%q becomes %q, %v", path, got, err)
		}
		if want := "_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"; query != want {
			t.Errorf("%q changes the settings to %q", path, query)
		}
	})
}
