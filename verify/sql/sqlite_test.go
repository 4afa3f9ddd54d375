package sql_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/sqllock"
)

// clockBehind sets the clock on which this boot of the host counts back. No Backend may be in use yet.
func (s *store) clockBehind(t *testing.T, by time.Duration) {
	t.Helper()
	use(t, s.polling(t), "first")
	s.do(t, "UPDATE fencelock_meta SET value = CAST(value AS INTEGER) - ? WHERE name LIKE 'clock %'", by.Microseconds())
}

// reboot starts the host again, by its wall clock, and returns a Backend.
func (s *store) reboot(t *testing.T) *sqllock.Backend {
	t.Helper()
	s.do(t, "DELETE FROM fencelock_meta WHERE name LIKE 'clock %'")
	return s.polling(t)
}

func TestLeasesAreOverAfterARestartOfTheHost(t *testing.T) {
	polled(t, []kind{sqlite}, func(t *testing.T, s *store, b *sqllock.Backend) {
		s.clockBehind(t, 7*time.Minute)
		old := hold(t, b, claim("k"))
		waited := wait(t, b, claim("k"))
		b = s.reboot(t)
		empty(t, b)
		gone(t, "Renew of a claim from before the restart", renew(b, soon(t), waited))
		now := hold(t, b, noWait(claim("k")))
		steps.Rises(t, waited.Token, now.Token)
		gone(t, "Leave of a claim from before the restart", b.Leave(soon(t), old, driver.Exit{}))
		leave(t, b, now)
	})
}

// TestRestartKeepsWhatIsNotOver carries what is left of a lease over: the place that a
// finished holder keeps for an hour stays taken, and a process on another clock of
// this host, as in a container with a time namespace, keeps its lock.
func TestRestartKeepsWhatIsNotOver(t *testing.T) {
	polled(t, []kind{sqlite}, func(t *testing.T, s *store, before *sqllock.Backend) {
		s.clockBehind(t, 20*time.Second)
		first := hold(t, before, claim("held"))
		must(t, before.Leave(soon(t), hold(t, before, claim("lingers")), driver.Exit{Linger: time.Hour}))
		b := s.reboot(t)
		for _, key := range []string{"held", "lingers"} {
			busy(t, b, key)
			l, err := b.Line(soon(t), key)
			if err != nil || len(l.Claims) != 1 {
				t.Fatalf("the line of %q is %+v, %v", key, l, err)
			}
			if left := l.Claims[0].Left; key == "held" && (left > first.TTL-20*time.Second || left < first.TTL/2) {
				t.Errorf("%v are left of a lease of %v of which 20s were over by the wall clock", left, first.TTL)
			}
		}
		renewed(t, before, first)
		busy(t, b, "held")
		leave(t, before, first)
		leaveAll(t, b)
	})
}

// TestClockOfTheHostSetBackHoldsNobodyForLong is a host that starts with its clock
// in the past: what is left of a lease is never more than the whole of it, wherever it is kept.
func TestClockOfTheHostSetBackHoldsNobodyForLong(t *testing.T) {
	polled(t, []kind{sqlite}, func(t *testing.T, s *store, b *sqllock.Backend) {
		const day = 24 * time.Hour
		s.clockBehind(t, -day)
		last := hold(t, b, ttl(claim("k"), 500*time.Millisecond)).Token
		s.do(t, "UPDATE fencelock_swap SET last = last + ?", day.Microseconds())
		b = s.reboot(t)
		got := granted(t, b, enter(t, b, claim("k")))      // within a minute
		steps.Rises(t, last+day.Microseconds(), got.Token) // though the clock is behind the counter
		leaveAll(t, b)
	})
}

// TestWaiterOutlivesTheClockItEnteredOn is a line in which everybody is on another
// clock: they are all carried over, in their order.
func TestWaiterOutlivesTheClockItEnteredOn(t *testing.T) {
	polled(t, []kind{sqlite}, func(t *testing.T, s *store, b *sqllock.Backend) {
		s.clockBehind(t, time.Second)
		first, second, third := hold(t, b, claim("k")), wait(t, b, claim("k")), wait(t, b, claim("k"))
		b = s.reboot(t)
		leave(t, b, first)
		leave(t, b, granted(t, b, second))
		leave(t, b, granted(t, b, third))
	})
}

func TestFilesMayHaveAnyName(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		names := []string{"locks.db", "a b.db", "ünï#1%20.db", "x&y=z;.db", "日本.db"}
		if runtime.GOOS != "windows" {
			names = append(names, "what?.db", `"quoted'.db`, "new\nline.db", `back\slash`)
		}
		for _, name := range names {
			path := filepath.Join(t.TempDir(), name)
			db := s.openDSN(t, sqllock.SQLiteDSN(path))
			b := s.backendOn(t, db)
			use(t, b, "k")
			empty(t, b)
			if _, err := os.Stat(path); err != nil {
				t.Errorf("the locks are not in the file %q: %v", name, err)
			}
			var mode string
			if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
				t.Errorf("the journal mode of %q is %q, %v; want wal", name, mode, err)
			}
		}
	})
}

// TestFullDiskIsAnErrorAndHeals lets the database grow no further.
func TestFullDiskIsAnErrorAndHeals(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		s.db.SetMaxOpenConns(1)
		b := s.backendOn(t, s.db)
		first := hold(t, b, claim("first"))
		w := wait(t, b, claim("first"))
		ask[int](t, s, fmt.Sprintf("PRAGMA max_page_count = %d", ask[int](t, s, "PRAGMA page_count")))
		var full error
		for i := 0; full == nil && i < 10_000; i++ {
			c := claim(fmt.Sprint("filler", i))
			c.Note = strings.Repeat("x", limit.Note)
			_, full = b.Enter(soon(t), c)
		}
		says(t, "Enter on a full disk", full, driver.ErrRefused, "room")
		steps.Same(t, "it is refused for good", permanent(full), false)
		// What needs no more room goes on.
		renewed(t, b, first)
		leave(t, b, first)
		leave(t, b, granted(t, b, w))
		ask[int](t, s, "PRAGMA max_page_count = 1000000")
		use(t, b, "later")
		leaveAll(t, b)
	})
}

// TestFileThatIsLockedRefuses: a program has a transaction open that writes, or all connections. A
// call that cannot wait until it ends has done nothing, and says why.
func TestFileThatIsLockedRefuses(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		backends := map[string]*sqllock.Backend{
			"one that is open": s.polling(t), "one on one connection": s.backendOn(t, s.one(t)),
		}
		for _, b := range backends {
			use(t, b, "k")
		}
		backends["a new one"] = s.polling(t)
		other, err := s.open(t).Conn(soon(t))
		must(t, err)
		defer other.Close()
		must(t, second(other.ExecContext(soon(t), "BEGIN IMMEDIATE")))
		for name, b := range backends {
			c := testclient.New(t, b, &fencelock.Options{TTL: time.Second})
			refusesAll(t, name, c, []string{"k0", "k1", "k2"}, "another connection has the file locked")
		}
		must(t, second(other.ExecContext(soon(t), "ROLLBACK")))
		// A pool whose connections the program has itself.
		db := s.one(t)
		b := s.backendOn(t, db)
		use(t, b, "k")
		mine, err := db.Conn(soon(t))
		must(t, err)
		for _, b := range []*sqllock.Backend{b, s.backendOn(t, db)} { // the second has not opened the file yet
			c := testclient.New(t, b, &fencelock.Options{TTL: time.Second})
			refusesAll(t, "without a free connection", c, []string{"k", "k"}, "raise SetMaxOpenConns")
		}
		must(t, mine.Close())
		use(t, s.polling(t), "k")
	})
}

// refusesAll tries several locks at once, and wants each to be refused, one of them for what is said; others wait for
// their turn. Whether a try did anything is unknown if a busy machine needs all of its time.
func refusesAll(t *testing.T, who string, c *fencelock.Client, keys []string, why string) {
	t.Helper()
	until(t, who+" is refused, and told why: "+why, func() bool {
		errs := make([]error, len(keys))
		var calls sync.WaitGroup
		for i, key := range keys {
			calls.Go(func() { _, errs[i] = c.TryLock(soon(t), key) })
		}
		calls.Wait()
		says := func(err error, text string) bool { return strings.Contains(fmt.Sprint(err), text) }
		unlike := func(err error) bool {
			return !errors.Is(err, fencelock.ErrRefused) ||
				!says(err, why) && !says(err, "came first have waited") && !says(err, "was not opened in time")
		}
		t.Logf("%s: TryLock returned %v", who, errs)
		return !slices.ContainsFunc(errs, unlike) && slices.ContainsFunc(errs, func(err error) bool { return says(err, why) })
	})
}

// TestFewConnectionsAreUsed: a pool without a bound, which is the fastest, stays small: one
// connection writes, four read.
func TestFewConnectionsAreUsed(t *testing.T) {
	// Who reads waits inside SQLite while somebody has the whole file.
	s := sqlite.with("Rollback", "file:%s?_pragma=busy_timeout(60000)").store(t)
	first := s.one(t)
	use(t, s.backendOn(t, first), "tables")
	run(t, first, "PRAGMA journal_mode = DELETE")
	db := s.open(t)
	b := s.backendOn(t, db)
	holder := hold(t, b, claim("k"))
	other, err := s.open(t).Conn(soon(t))
	must(t, err)
	run(t, other, "BEGIN EXCLUSIVE")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			steps.OK(t, second(b.Line(soon(t), "k")))
		})
	}
	until(t, "four read", func() bool { return db.Stats().InUse >= 4 })
	pause(100 * time.Millisecond) // for the others
	n := db.Stats().OpenConnections
	run(t, other, "COMMIT")
	other.Close()
	all.Wait()
	leave(t, b, holder)
	if n > 5 {
		t.Errorf("%d connections were opened; want 5 at most", n)
	}
}

// TestFileOfAnEarlierFormatIsRefused has a file in which an earlier fencelock kept its locks.
func TestFileOfAnEarlierFormatIsRefused(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		s.do(t, "CREATE TABLE fencelock_meta (name TEXT NOT NULL PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID")
		s.do(t, "INSERT INTO fencelock_meta (name, value) VALUES ('format', 1)")
		s.do(t, "CREATE TABLE fencelock_claim (key BLOB NOT NULL)")
		b := s.polling(t)
		refusal(t, b, "format 1, of an earlier fencelock", "format 3", "end all programs", "delete the file")
		steps.Same(t, "new tables in a refused file", ask[int](t, s, "SELECT count(*) FROM sqlite_master WHERE name = 'fencelock_swap'"), 0)
		s.do(t, "DROP TABLE fencelock_claim")
		s.do(t, "DROP TABLE fencelock_meta")
		use(t, b, "k")
	})
}

// TestDatabaseInMemory has no file: those who wait poll.
func TestDatabaseInMemory(t *testing.T) {
	only(t, sqlite.with("Memory", "%.0s:memory:"), func(t *testing.T, s *store) {
		db := s.one(t)
		a, b := s.backendOn(t, db), s.backendOn(t, db)
		holder, w := hold(t, a, claim("k")), wait(t, b, claim("k"))
		leave(t, a, holder)
		leave(t, b, granted(t, b, w))
		empty(t, a)
	})
}
