package bridge

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/sqllock/foreign"
)

// While programs of the other lock wait all the time, a client that only tries never gets it.
func TestBridgeWaitsInTheLineOfTheServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open               func(*testing.T) *sql.DB
		lock               func(*sql.DB) bridge.ForeignLock
		take, free, counts string
	}{
		"pg_advisory_lock": {
			postgresDB, func(db *sql.DB) bridge.ForeignLock { return foreign.Advisory(db, nil) },
			`SELECT pg_advisory_lock(hashtext($1))`, `SELECT pg_advisory_unlock(hashtext($1))`,
			`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`,
		},
		"GET_LOCK": {
			mariaDB, func(db *sql.DB) bridge.ForeignLock { return foreign.GetLock(db, "") },
			`SELECT GET_LOCK(?, 3600)`, `SELECT RELEASE_LOCK(?)`,
			`SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := c.open(t)
			await := func(want int) { // until so many wait
				t.Helper()
				testserver.Eventually(t, time.Minute, fmt.Sprint(want, " wait in the line of the server"), func() bool {
					var n int
					steps.Must(t, db.QueryRowContext(t.Context(), c.counts).Scan(&n))
					return n == want
				})
			}
			other := func() (func() error, error) {
				release, _, err := inSession(t.Context(), db, c.take, c.free, "order/42")
				return release, err
			}
			first, err := other()
			steps.Must(t, err)
			both := client(t, bridge.New(bridge.Foreign(c.lock(db)), memlock.New()))
			ctx, cancel := context.WithCancel(t.Context())
			cancelled := make(chan error)
			go func() { _, err := both.Lock(ctx, "order/42"); cancelled <- err }()
			await(1)
			cancel()
			if err := <-cancelled; err == nil {
				t.Error("a lock that was cancelled was granted")
			}
			await(0)
			locked := make(chan func() error)
			go func() {
				l, err := both.Lock(t.Context(), "order/42")
				if err != nil {
					t.Error(err)
					close(locked)
					return
				}
				locked <- func() error { return l.Release(context.Background()) }
			}()
			await(1)
			served := make(chan error)
			go func() {
				last, err := other()
				if err == nil {
					err = last()
				}
				served <- err
			}()
			await(2)
			steps.OK(t, first())
			select {
			case release := <-locked:
				await(1) // the other library's program waits for the bridge
				if release == nil || release() != nil {
					t.Error("the bridge does not hold the lock")
				}
			case err := <-served:
				t.Fatalf("a later program was served first: %v", err)
			}
			steps.OK(t, <-served)
		})
	}
}

// A user whose statements have a time limit waited for that long, and then behind all others.
func TestTimeLimitForStatementsCostsNoPlaceInTheLine(t *testing.T) {
	t.Parallel()
	pg, maria := testserver.Postgres(t), testserver.MariaDB(t)
	for _, c := range []struct {
		admin, app   *sql.DB
		prepare      []string
		lock         func(*sql.DB) bridge.ForeignLock
		take, counts string // of those who have waited for longer than the limit
	}{
		{
			open(t, "pgx", pg.URL()), open(t, "pgx", strings.Replace(pg.URL(), "postgres@", "app@", 1)),
			[]string{"CREATE ROLE app LOGIN", "ALTER ROLE app SET statement_timeout = '200ms'",
				"ALTER ROLE app SET lock_timeout = '300ms'"},
			func(db *sql.DB) bridge.ForeignLock { return foreign.Advisory(db, nil) },
			`SELECT pg_advisory_lock(hashtext($1))`,
			`SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND clock_timestamp() - query_start > '1s'`,
		},
		{
			dbOf(t, maria, "root"), dbOf(t, maria, "app"),
			[]string{"CREATE USER app", "GRANT ALL ON *.* TO app WITH MAX_STATEMENT_TIME 0.2"},
			func(db *sql.DB) bridge.ForeignLock { return foreign.GetLock(db, "") },
			`SELECT GET_LOCK(?, 3600)`,
			`SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock' AND time_ms > 1000`,
		},
	} {
		do(t, c.admin, c.prepare...)
		if _, _, err := inSession(t.Context(), c.admin, c.take, "", "order/42"); err != nil {
			t.Fatal(err)
		}
		l := c.lock(c.app)
		testserver.Eventually(t, time.Minute, l.Name()+": its place in the line outlasts the time limit", func() bool {
			// A server that is slow may end other statements of the Try: the next Try begins anew.
			if got, _ := l.Try(t.Context(), "order/42", "id", lease); got {
				t.Fatalf("%s: Try took a lock that is taken", l.Name())
			}
			var n int
			steps.Must(t, c.admin.QueryRowContext(t.Context(), c.counts).Scan(&n))
			return n == 1
		})
		steps.OK(t, steps.ErrOf(l.Release(t.Context(), "order/42", "id")))
	}
}
