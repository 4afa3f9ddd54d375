//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/drivertest/steps"
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
		p.says(`waiting for "n"`)
	}
	eventually(t, "each has a connection", func() bool { return one[int](t, test, ours) == 6 })
	for _, flags := range [][]string{{"-w", "600"}, nil} {
		p := s.start("fencelock", append(append([]string{"run"}, flags...), "n", "--", "touch", "ran"+fmt.Sprint(len(waiting)))...)
		p.says("too many clients already", "asking again")
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
		steps.OK(t, steps.ErrOf(os.Stat(s.path(fmt.Sprint("ran", i)))))
	}
}

// sqlOn is a connection for the test itself.
func sqlOn(t *testing.T, server *testserver.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// one returns what a query answers.
func one[T any](t *testing.T, conn *pgx.Conn, query string) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
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
