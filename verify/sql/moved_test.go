package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
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
			err := read.QueryRow("SELECT count(*) FROM fencelock_swap WHERE lock_key = 'held' AND arrivals <> ''").Scan(&n)
			return err == nil && n == 1
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

// TestInnoDBThatIsReadOnly: a server was started with innodb_read_only, for a backup or after damage.
func TestInnoDBThatIsReadOnly(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	s := &store{kind: mariaDB, on: server}
	db := s.openDSN(t, dsnOf(t, server, server.Addr(), "root"))
	b := s.backendOn(t, db)
	held := hold(t, b, ttl(claim("held"), time.Hour))
	run(t, db, "SHUTDOWN") // with changes to recover, it would not start read-only
	<-server.Done()
	must(t, server.Restart(testserver.Config("innodb_read_only=ON")))
	until(t, "the connections that were cut are used up", func() bool {
		_, err := b.Line(soon(t), "k")
		return db.Stats().OpenConnections <= 1 && err == nil
	})
	refusedForNow(t, b, held, "connect to the primary")
	must(t, server.Restart(testserver.Config("innodb_read_only=OFF")))
	until(t, "the server takes writes", func() bool { return renew(b, soon(t), held) == nil })
	leave(t, b, held)
}

// refusedForNow: each step that writes is refused, has not happened, and says so with these words.
func refusedForNow(t *testing.T, b *sqllock.Backend, held driver.Ticket, words ...string) {
	t.Helper()
	for name, call := range map[string]func(context.Context) error{
		"Enter": func(ctx context.Context) error { return second(b.Enter(ctx, claim("k"))) },
		"Renew": func(ctx context.Context) error { return renew(b, ctx, held) },
		"Leave": func(ctx context.Context) error { return b.Leave(ctx, held, driver.Exit{}) },
		"Break": func(ctx context.Context) error { return b.Break(ctx, held.Key, held.Token, driver.Break{}) },
	} {
		err := call(soon(t))
		if !errors.Is(err, driver.ErrRefused) || permanent(err) {
			t.Errorf("%s: %v; want that it is refused for now", name, err)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v; want %q in it", name, err, word)
			}
		}
	}
}

// dsnOf is how go-sql-driver/mysql gets to a server.
func dsnOf(t *testing.T, server *testserver.Server, addr, user string) string {
	t.Helper()
	u, err := url.Parse(server.URL())
	must(t, err)
	return user + "@tcp(" + addr + ")" + u.Path
}
