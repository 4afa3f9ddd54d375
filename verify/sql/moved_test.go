package sql_test

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// openAll opens so many connections of a pool.
func openAll(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	conns := make([]*sql.Conn, n)
	for i := range conns {
		conn, err := db.Conn(soon(t))
		must(t, err)
		conns[i] = conn
	}
	for _, conn := range conns {
		conn.Close()
	}
}

// TestPrimaryTurnsReadOnlyUnderOpenConnections: an administrator makes the server read-only, and the
// address of the database leads to another server, without a cut. No call fails for want of a connection
// to the new one, whichever connection of the pool it gets, and whoever listens listens there.
func TestPrimaryTurnsReadOnlyUnderOpenConnections(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
		standby := testserver.PostgresStandby(t, primary, primary.Addr())
		s := &store{kind: postgres, on: primary}
		address := faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
		dsn := strings.Replace(primary.URL(), primary.Addr(), address.Addr(), 1)
		db := s.openDSN(t, dsn)
		b := s.new(t, db, &sqllock.Options{CreateTables: true, Listen: listenOn(dsn)})
		holder := hold(t, b, claim("held"))
		w := wait(t, b, claim("held"))
		old, read := s.openDSN(t, primary.URL()), s.openDSN(t, standby.URL())
		listening := "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
		answer := behind(func() error { return second(b.Await(soon(t), w)) })
		until(t, "it listens", func() bool { return column[int](t, old, listening)[0] == 1 })
		well(t, "Await", <-answer)
		until(t, "the standby has it all", func() bool {
			var n int
			err := read.QueryRow("SELECT count(*) FROM fencelock_claim WHERE key = 'held'").Scan(&n)
			return err == nil && n == 2
		})
		openAll(t, db, 7) // the Backend keeps one for renewals

		run(t, read, "SELECT pg_promote()")
		run(t, old, "ALTER SYSTEM SET default_transaction_read_only = on")
		run(t, old, "SELECT pg_reload_conf()")
		address.Aim(standby.Addr())
		until(t, "the old primary takes no writes", func() bool {
			return column[string](t, old, "SHOW transaction_read_only")[0] == "on"
		})
		for range 8 {
			renewed(t, b, holder)
		}
		next := behind(func() error { return second(b.Await(soon(t), w)) })
		until(t, "it listens at the new primary", func() bool { return column[int](t, read, listening)[0] == 1 })
		well(t, "Await", <-next)
		leave(t, b, holder)
		leave(t, b, granted(t, b, w))
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		primary, other := testserver.MariaDB(t), testserver.MariaDB(t)
		s := &store{kind: mariaDB, on: primary}
		address := faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
		for _, server := range []*testserver.Server{primary, other} {
			admin := s.openDSN(t, dsnOf(t, server, server.Addr(), "root"))
			run(t, admin, "CREATE USER app")
			run(t, admin, "GRANT ALL ON locks.* TO app")
			use(t, s.backendOn(t, admin), "n")
			if server == other {
				hold(t, s.backendOn(t, admin), claim("there"))
			}
		}
		db := s.openDSN(t, dsnOf(t, primary, address.Addr(), "app"))
		b := s.backendOn(t, db)
		openAll(t, db, 8)
		run(t, s.openDSN(t, dsnOf(t, primary, primary.Addr(), "root")), "SET GLOBAL read_only = 1")
		address.Aim(other.Addr())
		// After one step, the other connections still lead to the old server. None of them may tell how
		// a line stands there.
		use(t, b, "n")
		for range 8 {
			l, err := b.Line(soon(t), "there")
			must(t, err)
			if len(l.Claims) != 1 {
				t.Fatalf("the line is %+v; want the claim that the other server has", l)
			}
			conn, err := db.Conn(soon(t)) // the next one is over another connection
			must(t, err)
			defer conn.Close()
			if db.Stats().Idle == 0 {
				break
			}
		}
	})
}

// dsnOf is how go-sql-driver/mysql gets to a server.
func dsnOf(t *testing.T, server *testserver.Server, addr, user string) string {
	t.Helper()
	u, err := url.Parse(server.URL())
	must(t, err)
	return user + "@tcp(" + addr + ")" + u.Path
}
