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
