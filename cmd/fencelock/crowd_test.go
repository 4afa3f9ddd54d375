//go:build unix

package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// TestWaitingCommandsHaveOneConnectionEach: a server takes eight connections, of which the test has one
// and an application one. One command holds n and five wait; more of them have no connection, and wait
// for that. The application is not shut out, and all get their turn.
func TestWaitingCommandsHaveOneConnectionEach(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.Config("max_connections = 8", "superuser_reserved_connections = 0"))
	s := newStage(t, server.URL())
	test, application := sqlOn(t, server), sqlOn(t, server)
	const ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock'"
	holder := s.holds(untilTold)
	var waiting []*proc
	for i := range 5 {
		flags := []string{"-v", "-w", "600"}[:1+2*(i%2)]
		waiting = append(waiting, s.start("fencelock", append(append([]string{"run"}, flags...),
			"n", "--", "touch", fmt.Sprint("ran", i))...))
		p := waiting[i]
		eventually(t, "it waits", func() bool { return strings.Contains(p.err.String(), `waiting for "n"`) })
	}
	eventually(t, "each has a connection", func() bool { return one[int](t, test, ours) == 6 })
	for _, flags := range [][]string{{"-w", "600"}, nil} {
		p := s.start("fencelock", append(append([]string{"run"}, flags...), "n", "--", "touch", "ran"+fmt.Sprint(len(waiting)))...)
		eventually(t, "it says that it has no connection", func() bool {
			return strings.Contains(p.err.String(), "too many clients already") && strings.Contains(p.err.String(), "asking again")
		})
		waiting = append(waiting, p)
	}
	s.wants(exitNotAcquired, "run", "-w", "1", "n", "--", "true").wantLine(`"n" was not acquired`, "too many clients")
	s.wants(9, "run", "-w", "1", "-E", "9", "n", "--", "true")
	s.wants(exitUnavailable, "run", "-n", "n", "--", "true").wantLine("refuses for now", "too many clients")
	one[int](t, application, "SELECT 1")
	if n := one[int](t, test, ours); n != 6 {
		t.Errorf("six commands have %d connections", n)
	}
	s.touch("enough")
	holder.wantExit(0)
	for i, p := range waiting {
		p.wantExit(0)
		if _, err := os.Stat(s.path(fmt.Sprint("ran", i))); err != nil {
			t.Error(err)
		}
	}
}

// TestFullServerIsWaitedFor: an application has all connections that the server takes. A command that
// may wait begins once one is free. Programs and the service are told the same.
func TestFullServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		server := testserver.MariaDB(t)
		db := openURL(t, server.URL())
		_, err := db.ExecContext(t.Context(), "SET GLOBAL max_connections = 10")
		must(t, err)
		waitForFull(t, server.URL(), "Too many connections")
	})
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		server := testserver.PgBouncer(t, testserver.Postgres(t), testserver.Config("max_client_conn = 10"))
		waitForFull(t, server.URL(), "no more connections allowed")
	})
}

func openURL(t *testing.T, text string) *sql.DB {
	t.Helper()
	u, err := storeurl.Parse(text, storeurl.Source{})
	must(t, err)
	db, err := u.SQL()
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func waitForFull(t *testing.T, at, says string) {
	t.Helper()
	db := openURL(t, at)
	var conns []*sql.Conn
	full := false
	for range 20 { // MariaDB has one more for an administrator
		conn, err := db.Conn(t.Context())
		if full = err != nil && strings.Contains(err.Error(), says); full {
			break
		}
		must(t, err)
		conns = append(conns, conn)
	}
	if !full {
		t.Fatalf("the server takes %d connections", len(conns))
	}
	s := newStage(t, at)
	p := s.start("fencelock", "run", "n", "--", "true")
	eventually(t, "it says that it has no connection", func() bool {
		return strings.Contains(p.err.String(), says) && strings.Contains(p.err.String(), "asking again")
	})
	s.wants(exitUnavailable, "run", "-n", "n", "--", "true").wantLine("refuses for now", says)

	u, err := storeurl.Parse(at, storeurl.Source{})
	must(t, err)
	open, err := u.Open(t.Context(), storeurl.Config{})
	must(t, err)
	defer open.Close()
	locks, err := fencelock.New(open.Backend, nil)
	must(t, err)
	defer locks.Close()
	if _, err := locks.TryLock(t.Context(), "n"); !errors.Is(err, fencelock.ErrRefused) || !strings.Contains(err.Error(), says) {
		t.Errorf("TryLock: %v; want ErrRefused that says %q", err, says)
	}

	db.SetMaxIdleConns(-1)
	for _, conn := range conns {
		conn.Close()
	}
	p.wantExit(0)
}
