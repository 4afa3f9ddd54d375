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
	d := swapDialects[s.dialect]
	if err := swapsql.New(swapsql.NewPool(s.open(t), d), d, swapsql.Options{}).CreateTables(soon(t)); err != nil {
		t.Fatal(err)
	}
	dsn := s.dsn
	if s.dialect == sqllock.SQLite {
		dsn = "file:" + s.name + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)"
	}
	o := swapsql.Options{}
	if listen := options(s.dialect, s.pooled, s.dsn).Listen; listen != nil {
		o.Listen = listen
	}
	return func(t *testing.T) driver.Backend {
		b := swapsql.Open(swapsql.New(swapsql.NewPool(s.openDSN(t, dsn), d), d, o))
		t.Cleanup(func() { b.Close() })
		return b
	}
}

func TestSwapAnswersAsTheModelSays(t *testing.T) {
	each(t, everyWay, func(t *testing.T, s *store) { drivertest.Model(t, s.swapping(t)) })
}
