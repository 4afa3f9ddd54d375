package sql_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/sqllock"
)

var swapDialects = map[sqllock.Dialect]*swapsql.Dialect{
	sqllock.SQLite: swapsql.SQLite, sqllock.Postgres: swapsql.Postgres, sqllock.MySQL: swapsql.MySQL,
}

// swapping opens views of a store that swaps.
func (s *store) swapping(t *testing.T) drivertest.Opener {
	open := s.swaps(t, "")
	return func(t *testing.T) driver.Backend { return open(t) }
}

// swaps makes the tables of a store that swaps, and returns what opens one.
func (s *store) swaps(t testing.TB, prefix string) func(t testing.TB) driver.Backend {
	d, o := swapDialects[s.dialect], swapsql.Options{Prefix: prefix}
	if err := swapsql.New(swapsql.NewPool(s.open(t), d), d, o).CreateTables(soon(t)); err != nil {
		t.Fatal(err)
	}
	dsn := s.dsn
	if s.dialect == sqllock.SQLite {
		dsn = "file:" + s.name + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)"
	}
	if listen := options(s.dialect, s.pooled, s.dsn).Listen; listen != nil {
		o.Listen = listen
	}
	return func(t testing.TB) driver.Backend {
		b := swapsql.Open(swapsql.New(swapsql.NewPool(s.openDSN(t, dsn), d), d, o))
		t.Cleanup(func() { b.Close() })
		return b
	}
}

func TestSwapAnswersAsTheModelSays(t *testing.T) {
	each(t, everyWay, func(t *testing.T, s *store) { drivertest.Model(t, s.swapping(t)) })
}

// TestSwapNeedsFourRights: who uses the tables may read and write rows, and nothing else.
func TestSwapNeedsFourRights(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		user := s.name + "_plain"
		create, drop := []string{
			"CREATE ROLE " + user + " LOGIN PASSWORD 's3cret'",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock_swap, fencelock_lease, fencelock_history TO " + user,
			"GRANT SELECT ON fencelock_meta TO " + user,
		}, []string{"DROP OWNED BY " + user, "DROP ROLE " + user}
		if s.dialect == sqllock.MySQL {
			create = []string{
				"CREATE USER " + user + " IDENTIFIED BY 's3cret'",
				"GRANT SELECT, INSERT, UPDATE, DELETE ON " + s.name + ".* TO " + user,
			}
			drop = []string{"DROP USER " + user}
		}
		s.swapping(t) // which makes the tables
		for _, text := range create {
			s.do(t, text)
		}
		t.Cleanup(func() {
			for _, text := range drop {
				s.do(t, text)
			}
		})
		dsn, d := s.as(t, user, "s3cret"), swapDialects[s.dialect]
		drivertest.Model(t, func(t *testing.T) driver.Backend {
			db := s.openDSN(t, dsn)
			b := swapsql.Open(swapsql.New(swapsql.NewPool(db, d), d, swapsql.Options{}))
			t.Cleanup(func() { b.Close() })
			return b
		}, 1)
	})
}

// TestSwapInATransactionThatWasLeftOpen: a program has given a connection back to the pool with a transaction on
// it, which sees the database as it was. A claim that enters over that connection is in line for everybody, and
// stays if the connection is closed.
func TestSwapInATransactionThatWasLeftOpen(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		others, d := s.swapping(t)(t), swapDialects[s.dialect]
		db := s.one(t)
		b := swapsql.Open(swapsql.New(swapsql.NewPool(db, d), d, swapsql.Options{}))
		t.Cleanup(func() { b.Close() })
		leaveOpen := func() {
			conn, err := db.Conn(soon(t))
			must(t, err)
			run(t, conn, "BEGIN")
			_, err = conn.ExecContext(soon(t), "SELECT COUNT(*) FROM fencelock_swap")
			must(t, err)
			conn.Close()
		}
		leave(t, b, hold(t, b, claim("warm")))
		for _, key := range []string{"new", "used", "used"} {
			leaveOpen()
			held := hold(t, b, claim(key))
			busy(t, others, key)
			leaveOpen()
			renewed(t, b, held)
			leaveOpen()
			leave(t, b, held)
			leave(t, others, hold(t, others, claim(key)))
		}
		leaveOpen()
		held := hold(t, b, claim("kept"))
		db.Close()
		busy(t, others, "kept")
		leave(t, others, held)
	})
}
