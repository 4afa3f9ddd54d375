// Package mariadb_test holds the MySQL dialect of sqllock to the laws of package driver,
// on a MariaDB server, and to what several processes on one server need.
package mariadb_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

func TestMain(m *testing.M) {
	// The driver writes of broken connections, which tests break on purpose.
	mysql.SetLogger(log.New(io.Discard, "", 0))
	if worker() {
		return
	}
	// Most of the time tests wait: for leases to end, and for the disk.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := flag.Set("test.parallel", "12"); err != nil {
			panic(err)
		}
	}
	os.Exit(run(m))
}

// run runs the tests, ends the server that they share, and looks for goroutines.
func run(m *testing.M) int {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	return code
}

// shared is the server of all tests that do not break one.
var shared struct {
	sync.Once
	server *testserver.Server
	dir    string
	err    error
}

func server(t testing.TB) *testserver.Server {
	t.Helper()
	shared.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "fencelock-mariadb"); shared.err == nil {
			shared.server, shared.err = testserver.StartMariaDB(context.Background(), shared.dir)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// dsnOf names a database on s. tail is a query of the DSN, without the question mark.
func dsnOf(s *testserver.Server, database, tail string) string {
	return fmt.Sprintf("root@tcp(%s)/%s?%s", s.Addr(), database, tail)
}

// newDatabase makes a database on the shared server, which ends with the test, and must
// hold nothing but tables without claims then, with nobody connected to it.
func newDatabase(t testing.TB) string {
	t.Helper()
	name := "t" + strings.ToLower(rand.Text())
	admin := openDSN(t, dsnOf(server(t), "", ""))
	do(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		tidy(t, admin, name)
		do(t, admin, "DROP DATABASE "+name)
	})
	return name
}

// tidy looks at what a test has left in a database: tables and procedures of ours, and no
// live claim.
func tidy(t testing.TB, admin *sql.DB, name string) {
	t.Helper()
	if t.Failed() {
		return
	}
	until(t, "everybody has closed their connections", func() bool {
		var n int
		err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = ?", name).Scan(&n)
		return err == nil && n == 0
	})
	var others string
	if err := admin.QueryRow(`SELECT COALESCE(GROUP_CONCAT(table_name), '') FROM information_schema.tables
		WHERE table_schema = ? AND table_name NOT LIKE '%\_line' AND table_name NOT LIKE '%\_claim'
		AND table_name NOT LIKE '%\_rest' AND table_name NOT LIKE '%\_meta'`, name).Scan(&others); err != nil {
		t.Fatal(err)
	}
	if others != "" {
		t.Errorf("the database has other tables after the test: %s", others)
	}
	rows, err := admin.Query(`SELECT table_name, IF(table_name LIKE '%\_line', 'id IS NOT NULL AND', '') FROM information_schema.tables
		WHERE table_schema = ? AND (table_name LIKE '%\_claim' OR table_name LIKE '%\_line')`, name)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var table, kept string
		var n int
		if err := rows.Scan(&table, &kept); err != nil {
			t.Fatal(err)
		}
		if err := admin.QueryRow(fmt.Sprintf("SELECT COUNT(*) FROM %s.%s WHERE %s expires > UNIX_TIMESTAMP(SYSDATE(6)) * 1000000", name, table, kept)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			t.Errorf("%s has %d live claims after the test; want none", table, n)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// newDSN names a database of the test's own.
func newDSN(t testing.TB, tail string) string {
	t.Helper()
	return dsnOf(server(t), newDatabase(t), tail)
}

// onMySQL reports whether the server is MySQL, not MariaDB.
func onMySQL(t testing.TB, db *sql.DB) bool {
	t.Helper()
	var version string
	if err := db.QueryRow("SELECT VERSION()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(version, "MariaDB")
}

// openDSN opens a pool that ends with the test.
func openDSN(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatalf("open %s: %v", dsn, err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func do(t testing.TB, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(soon(t), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// backend returns a Backend on db, with tables, that ends with the test.
func backend(t testing.TB, db *sql.DB) *sqllock.Backend {
	t.Helper()
	b := sqllock.New(db, sqllock.MySQL, &sqllock.Options{CreateTables: true})
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

func reader(key string) driver.Claim {
	c := claim(key)
	c.Weight = 1
	return c
}

func ttl(c driver.Claim, d time.Duration) driver.Claim {
	c.TTL = d
	return c
}

func noWait(c driver.Claim) driver.Claim {
	c.NoWait = true
	return c
}

// soon ends with the test, or after 20 seconds.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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

// apart has the claim that is alone on key moved from the row of its line to its own, as
// whoever else opens a step on the line does.
func apart(t testing.TB, b driver.Backend, key string) {
	t.Helper()
	var busy *driver.BusyError
	if _, err := b.Enter(soon(t), noWait(claim(key))); !errors.As(err, &busy) {
		t.Fatalf("a try on %q answered %v; want that it is held", key, err)
	}
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

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(15 * time.Second)
	for !cond() {
		if time.Now().After(end) {
			t.Fatalf("it did not happen: %s", what)
		}
		<-tick.C
	}
}

func second[T any](_ T, err error) error { return err }
