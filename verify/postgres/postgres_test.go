// Package postgres_test holds the PostgreSQL dialect of sqllock to the laws of package
// driver, on a real server, and to what several processes on one server need.
package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// server is the one that tests share which do nothing to it.
var server *testserver.Server

func TestMain(m *testing.M) {
	if worker() {
		return
	}
	// Most of the time tests wait for leases to end.
	flag.Set("test.parallel", "12")
	goleak.VerifyTestMain(withServer{m})
}

// withServer runs the tests between the start and the end of the server.
type withServer struct{ m *testing.M }

func (w withServer) Run() (code int) {
	dir, err := os.MkdirTemp("", "postgres")
	if err == nil {
		defer os.RemoveAll(dir)
		server, err = testserver.StartPostgres(context.Background(), dir, testserver.Config("log_min_error_statement = panic", "log_checkpoints = off"))
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer server.Stop()
	code = w.m.Run()
	if code != 0 {
		fmt.Println("log of the server:")
		fmt.Println(server.Log())
	}
	return code
}

var databases atomic.Int64

// newURL makes a database for this test, and returns its URL with query parameters added.
// At the end nothing may be left in it but tables, and nobody may be connected to it.
func newURL(t testing.TB, params ...string) string {
	t.Helper()
	return newURLOn(t, server, params...)
}

func newURLOn(t testing.TB, s *testserver.Server, params ...string) string {
	t.Helper()
	name := fmt.Sprintf("test%d", databases.Add(1))
	do(t, s.URL(), "CREATE DATABASE "+name)
	u := with(t, s.URL(), name, params...)
	t.Cleanup(func() {
		if s.Pid() != 0 {
			left(t, s, name)
		}
	})
	return u
}

// with returns a URL with another database and more parameters.
func with(t testing.TB, raw, database string, params ...string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if database != "" {
		u.Path = "/" + database
	}
	q := u.Query()
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		q.Set(name, value)
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String()
}

// do runs a statement on a connection of its own.
func do(t testing.TB, url, query string, args ...any) {
	t.Helper()
	ctx := soon(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// left looks at what a test has left in a database, and drops it.
func left(t testing.TB, s *testserver.Server, database string) {
	t.Helper()
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Error(err)
		return
	}
	defer admin.Close(ctx)
	until(t, "everybody has closed their connections", func() bool {
		var n int
		err := admin.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name <> 'pooler'", database).Scan(&n)
		return err == nil && n == 0
	})
	conn, err := pgx.Connect(ctx, with(t, s.URL(), database))
	if err != nil {
		t.Error(err)
		return
	}
	rows, err := conn.Query(ctx, "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v', 'S', 'm', 'p') ORDER BY 1")
	if err != nil {
		t.Error(err)
		return
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Error(err)
		return
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "fencelock_") && !strings.HasPrefix(name, "app_") {
			t.Errorf("%s is left in the database", name)
		}
		ends := map[string]string{"claim": "expires", "line": "id <> '' AND soonest"}[name[strings.LastIndexByte(name, '_')+1:]]
		if ends != "" {
			var n int
			err := conn.QueryRow(ctx, "SELECT count(*) FROM "+name+" WHERE "+ends+" > extract(epoch FROM clock_timestamp()) * 1000000").Scan(&n)
			if err != nil || n > 0 {
				t.Errorf("%d claims are left in %s, %v", n, name, err)
			}
		}
	}
	conn.Close(ctx)
	if _, err := admin.Exec(ctx, "DROP DATABASE "+database+" WITH (FORCE)"); err != nil {
		t.Error(err)
	}
}

// openURL opens a pool that ends with the test. It is bounded, as every pool on a server
// should be.
func openURL(t testing.TB, url string) *sql.DB {
	t.Helper()
	return openWith(t, "pgx", url)
}

func openWith(t testing.TB, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { db.Close() })
	return db
}

// backend returns a Backend on db, with tables, that is asked for news again and again,
// and ends with the test.
func backend(t testing.TB, db *sql.DB) *sqllock.Backend {
	t.Helper()
	b := sqllock.New(db, sqllock.Postgres, &sqllock.Options{CreateTables: true})
	t.Cleanup(func() { b.Close() })
	return b
}

// listening returns a Backend with a pool of its own that is woken by NOTIFY.
func listening(t testing.TB, url string) *sqllock.Backend {
	t.Helper()
	b := sqllock.New(openURL(t, url), sqllock.Postgres, &sqllock.Options{CreateTables: true, Listen: listenOn(url)})
	t.Cleanup(func() { b.Close() })
	return b
}

// listenOn is the adapter that the documentation of Options.Listen shows.
func listenOn(url string) func(ctx context.Context, channel string, heard func()) error {
	return func(ctx context.Context, channel string, heard func()) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		for {
			heard()
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return err
			}
		}
	}
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

func second[T any](_ T, err error) error { return err }
