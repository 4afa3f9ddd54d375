// Package sqlite_test holds the SQLite dialect of sqllock to the laws of package
// driver, and to what several processes on one file need.
package sqlite_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// newFile returns a path for a database that does not exist yet. When the test ends no
// claim may live in it, and nobody have it open.
func newFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "locks.db")
	t.Cleanup(func() { tidy(t, path) })
	return path
}

func tidy(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil || t.Failed() {
		return
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	rows, err := db.Query("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%_claim'")
	for err == nil && rows.Next() {
		var name string
		if err = rows.Scan(&name); err == nil {
			names = append(names, name)
		}
	}
	for _, name := range names {
		var n int
		if err = db.QueryRow("SELECT count(*) FROM "+name+" WHERE until > ?", time.Now().UnixMicro()).Scan(&n); err == nil && n > 0 {
			t.Errorf("%d claims are left in %s", n, name)
		}
	}
	if err != nil {
		t.Errorf("looking at what is left: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	// Whoever closes a database last takes its log away.
	if _, err := os.Stat(path + "-wal"); err == nil {
		t.Errorf("somebody still has %s open", path)
	}
}

// openDSN opens a pool that ends with the test.
func openDSN(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatalf("open %s: %v", dsn, err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func openFile(t testing.TB, path string) *sql.DB {
	t.Helper()
	return openDSN(t, sqllock.SQLiteDSN(path))
}

// backend returns a Backend on db, with tables, that ends with the test.
func backend(t testing.TB, db *sql.DB) *sqllock.Backend {
	t.Helper()
	b := sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true})
	t.Cleanup(func() { b.Close() })
	return b
}

// claim is an exclusive claim with a long lease.
func claim(key string) driver.Claim {
	return driver.Claim{
		Key: key, ID: rand.Text(), Owner: "test", Note: "a note",
		Capacity: driver.RW, Weight: driver.RW, TTL: time.Minute, Span: 1,
	}
}

func ttl(c driver.Claim, d time.Duration) driver.Claim {
	c.TTL = d
	return c
}

func noWait(c driver.Claim) driver.Claim {
	c.NoWait = true
	return c
}

// context15 ends with the test, or after 15 seconds.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// enter must succeed.
func enter(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket, err := b.Enter(soon(t), c)
	if err != nil {
		t.Fatalf("Enter on %q: %v", c.Key, err)
	}
	return ticket
}

// hold must be granted at once.
func hold(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket := enter(t, b, c)
	if !ticket.Granted {
		t.Fatalf("Enter on %q was not granted; want a grant", c.Key)
	}
	return ticket
}

// wait must stand in line.
func wait(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket := enter(t, b, c)
	if ticket.Granted {
		t.Fatalf("Enter on %q was granted; want it to wait", c.Key)
	}
	return ticket
}

func leave(t testing.TB, b driver.Backend, ticket driver.Ticket) {
	t.Helper()
	if err := b.Leave(soon(t), ticket, driver.Exit{}); err != nil {
		t.Fatalf("Leave on %q: %v", ticket.Key, err)
	}
}

// granted waits until ticket is granted.
func granted(t testing.TB, b driver.Backend, ticket driver.Ticket) driver.Ticket {
	t.Helper()
	ctx := soon(t)
	for !ticket.Granted {
		var err error
		if ticket, err = b.Await(ctx, ticket); err != nil {
			t.Fatalf("Await on %q: %v", ticket.Key, err)
		}
	}
	return ticket
}

// empty must find no live claim.
func empty(t testing.TB, b *sqllock.Backend) {
	t.Helper()
	for l, err := range b.Lines(soon(t), "") {
		if err != nil {
			t.Fatalf("Lines: %v", err)
		}
		t.Errorf("the line of %q still has %d claims, the first is %+v; want none", l.Key, len(l.Claims), l.Claims[0])
	}
}

func TestMain(m *testing.M) {
	if worker() {
		return
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		// Many tests wait for leases to end.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
