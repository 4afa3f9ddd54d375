package sqllock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/swapsql"
)

type stateError string

func (e stateError) Error() string    { return "the server says " + string(e) }
func (e stateError) SQLState() string { return string(e) }

// Three outcomes: the step may have happened; the server refused it for now; it will never do it.
func TestServerErrorsSayWhatBecameOfTheStep(t *testing.T) {
	mysqlError := func(code string) error { return fmt.Errorf("Error %s (HY000): text", code) }
	for _, tt := range []struct {
		dialect *dialect
		make    func(code string) error
		want    map[string]string
	}{
		{&postgres, func(code string) error { return stateError(code) }, map[string]string{
			"40001": "refused", "55P03": "refused", "25006": "refused", "53300": "refused", "57P03": "refused", "53100": "refused",
			"57P01": "unknown", "08006": "unknown", "XX000": "unknown", "58030": "unknown",
			"42501": "for good", "28P01": "for good",
		}},
		{&mysql, mysqlError, map[string]string{
			"1036": "refused", "1047": "refused", "1205": "refused", "1114": "refused", "1129": "refused", "1290": "refused", "1836": "refused", "1040": "refused",
			"1203": "refused", "1226": "refused",
			"2013": "unknown", "1053": "unknown", "1317": "unknown",
			"1142": "for good", "1045": "for good", "3159": "for good", "4150": "for good",
		}},
	} {
		s := &pool{config: config{prefix: swapsql.DefaultPrefix, dialect: tt.dialect}}
		for code, want := range tt.want {
			told(t, code, s.fail("enter", "key", tt.make(code)), want)
		}
	}
}

// told checks which of the three outcomes err tells of.
func told(t *testing.T, what string, err error, want string) {
	t.Helper()
	got := "unknown"
	switch {
	case errors.Is(err, driver.ErrPermanent):
		got = "for good"
	case driverutil.RefusedForNow(err):
		got = "refused"
	}
	if got != want || errors.Is(err, driver.ErrRefused) == (want == "unknown") {
		t.Errorf("%s is %s, want %s: %v", what, got, want, err)
	}
}

// PgBouncer has one code for what it refuses and for what broke.
func TestPoolersSayWhatBecameOfTheStep(t *testing.T) {
	s := &pool{config: config{dialect: &postgres}}
	for text, want := range map[string]string{
		"no more connections allowed (max_client_conn)":                             "refused",
		"query_wait_timeout":                                                        "refused",
		"server login has been failing, try again later (server_login_retry)":       "refused",
		"server login failed: FATAL sorry, too many clients already":                "refused",
		"server conn crashed?":                                                      "unknown",
		"query_timeout":                                                             "unknown",
		"terminating connection because backend initialization completed past this": "unknown",
	} {
		told(t, text, s.fail("enter", "key", pgError{stateError("08P01"), text}), want)
	}
}

type pgError struct {
	stateError
	text string
}

func (e pgError) Error() string { return "FATAL: " + e.text + " (SQLSTATE 08P01)" }

func TestSQLiteSaysWhatBecameOfTheStep(t *testing.T) {
	s := &sqlite{config: config{dialect: &onSQLite}}
	for text, want := range map[string]string{
		"database is locked (5) (SQLITE_BUSY)":       "refused",
		"database or disk is full (13)":              "refused",
		"unable to open database file (14)":          "refused",
		"disk I/O error (10)":                        "unknown",
		"interrupted (9)":                            "unknown",
		"attempt to write a readonly database (8)":   "for good",
		"SQL logic error: no such table: x (1)":      "for good",
		"database disk image is malformed (11)":      "for good",
		"file is not a database (26)":                "for good",
		"the driver says something that is not know": "unknown",
	} {
		told(t, text, s.fail("enter", "key", errors.New(text)), want)
	}
}

// A step that was tried again until its context ended has done nothing if the last try says so.
func TestEndOfATryAgainSaysWhatKeptIt(t *testing.T) {
	for last, want := range map[error]string{
		errors.New("database is locked (5)"): "refused",
		errMoved:                             "unknown",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		err := retry(ctx, func(error) bool { return true }, 1, 1, func() error { cancel(); return last })
		err = (&config{dialect: &onSQLite}).fail("enter", "key", err)
		told(t, last.Error(), err, want)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not match the end of its context", err)
		}
	}
}

const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 27 0:25 / /srv rw,relatime shared:2 master:3 - nfs4 filer:/export rw,vers=4.2
29 28 254:1 / /srv/local rw - xfs /dev/vdb rw
30 27 0:26 / /mnt/two\040words rw - cifs //filer/share rw
31 27 254:3 / /over rw - ext4 /dev/vdc rw
32 31 0:30 / /over rw - fuse.sshfs host: rw
33 27 254:4 /locks.db /etc/locks.db rw - fuse.own own rw
a line that makes no sense
`

func TestFileSystemOfAPath(t *testing.T) {
	for path, want := range map[string]string{
		"/var/lib/locks.db":       "ext4",
		"/srv/locks.db":           "nfs4",
		"/srv/local/locks.db":     "xfs",
		"/srv/locally/locks.db":   "nfs4",
		"/srvs/locks.db":          "ext4",
		"/mnt/two words/locks.db": "cifs",
		"/over/locks.db":          "fuse.sshfs",
		"/etc/locks.db":           "fuse.own",
		"relative":                "",
	} {
		if got := mountedAs(mountinfo, path); got != want {
			t.Errorf("%s is on %q, want %q", path, got, want)
		}
	}
}

// There is no network file system to put a file on, so this is what its kind would be found to
// be.
func TestNetworkFileSystemIsAnError(t *testing.T) {
	for kind, want := range map[string]string{
		"nfs4": "error", "cifs": "error", "9p": "error", "fuse.sshfs": "error", "fuse.own": "warning", "fuseblk": "warning",
		"ext4": "", "xfs": "", "btrfs": "", "tmpfs": "", "overlay": "", "": "",
	} {
		e := &examination{}
		e.sqliteFileSystem(kind)
		got := ""
		for _, f := range e.Findings {
			got += f.Severity.String()
			if f.Code != "sqlite-network" || f.Value != kind {
				t.Errorf("%s: %+v", kind, f)
			}
		}
		if got != want {
			t.Errorf("%s is %q, want %q", kind, got, want)
		}
	}
}

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
