package sqllock

import (
	"cmp"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// FuzzPrefix: a prefix of table names that is taken is an identifier everywhere, for it
// becomes part of SQL text.
func FuzzPrefix(f *testing.F) {
	for _, p := range []string{"", "fencelock_", "a", "1a", "a b", "a;--", `a"`, "a`", "a\n", "é", "sqlite_x", "SQLITE_", "_", strings.Repeat("a", 33)} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		n, err := newNames(p)
		if err != nil {
			return
		}
		if strings.Trim(n.prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || len(n.prefix) > 32 {
			t.Errorf("the prefix %q is taken", p)
		}
		for _, d := range []Dialect{SQLite, Postgres, MySQL} {
			text, err := Schema(d, &Options{Prefix: p})
			if err != nil || !strings.Contains(text, n.prefix) {
				t.Errorf("the %v schema of %q: %v", d, p, err)
			}
		}
	})
}

// FuzzAfter: the bound of a listing is above all keys that begin with the prefix, and
// not above others.
func FuzzAfter(f *testing.F) {
	for _, p := range []string{"", "a", "\xff", "a\xff\xff", "\x00", "orders/"} {
		f.Add(p, p+"x")
		f.Add(p, "b")
	}
	f.Fuzz(func(t *testing.T, prefix, key string) {
		if key == "" || len(key) > driver.MaxKey || len(prefix) > driver.MaxKey {
			return
		}
		if in, want := key >= prefix && key < string(after(prefix)), strings.HasPrefix(key, prefix); in != want {
			t.Errorf("%q among those that begin with %q: %v; want %v", key, prefix, in, want)
		}
	})
}

// FuzzRows: whatever the rows of a line hold is an error, or a line that makes sense.
func FuzzRows(f *testing.F) {
	f.Add(int64(1_800_000_000_000_000), int64(64), int64(driver.RW), int64(1), true, int64(1_800_000_030_000_000), "ABC", true)
	f.Add(int64(-1), int64(0), int64(0), int64(-5), true, int64(0), "", false)
	f.Add(int64(1<<63-1), int64(1<<62), int64(1<<62), int64(1<<62), true, int64(1<<63-1), "x", false)
	f.Add(int64(1<<63-1), int64(1), int64(1), int64(1), false, int64(-1<<63), "x", false)
	f.Fuzz(func(t *testing.T, token, span, capacity, weight int64, granted bool, expires int64, id string, lingering bool) {
		r := row{token: token, span: span, capacity: capacity, weight: weight, granted: granted, id: id, lingering: lingering}
		r.expires, r.key, r.now = expires, "k", 1_800_000_000_000_000
		s := snapshot{}
		if err := cmp.Or(s.add(&r), s.add(&r)); err != nil {
			return
		}
		l := s.line()
		if l.Last < token || token != 0 && l.Last < 1 {
			t.Errorf("the last token is %d, and a claim has %d", l.Last, token)
		}
		for _, c := range l.Claims {
			if c.Left <= 0 || c.Weight < 1 || c.Weight > c.Capacity || c.Capacity > driver.RW {
				t.Errorf("a claim makes no sense: %+v", c)
			}
		}
		registry := waiterRegistry{}
		w := &waiter{t: driver.Ticket{Claim: driver.Claim{Key: "k", ID: id}}, result: make(chan result, 1)}
		decided := registry.update(&s, []*waiter{w})
		if waits := len(s.claims) > 0 && !lingering && !granted; waits == (len(decided) > 0) {
			t.Errorf("%d waiters are told of a grant or a loss, in the line %+v", len(decided), s.claims)
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

// FuzzLeft: what is left of a lease, whatever a server says, is a time and not an
// overflow.
func FuzzLeft(f *testing.F) {
	f.Add(int64(0), int64(0))
	f.Add(int64(1<<63-1), int64(-1<<63))
	f.Add(int64(-1<<63), int64(1<<63-1))
	f.Fuzz(func(t *testing.T, expires, now int64) {
		c := row{}
		c.expires = expires
		left := c.left(now)
		if expires <= now && left > 0 || expires > now && left <= 0 {
			t.Errorf("of a lease until %d %v is left at %d", expires, left, now)
		}
		_ = left.Round(time.Second)
	})
}
