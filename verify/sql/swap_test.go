package sql_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/swaplock"
	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/sqllock"
)

var swapDialects = map[sqllock.Dialect]*swapsql.Dialect{
	sqllock.SQLite: swapsql.SQLite, sqllock.Postgres: swapsql.Postgres, sqllock.MySQL: swapsql.MySQL,
}

// swapping opens views of a store that swaps.
func (s *store) swapping(t *testing.T) drivertest.Opener {
	if err := swapsql.New(s.db, swapDialects[s.dialect]).CreateTables(soon(t)); err != nil {
		t.Fatal(err)
	}
	dsn := s.dsn
	if s.dialect == sqllock.SQLite {
		dsn = "file:" + s.name + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)"
	}
	return func(t *testing.T) driver.Backend {
		b := swaplock.New(swapsql.New(s.openDSN(t, dsn), swapDialects[s.dialect]))
		t.Cleanup(func() { b.Close() })
		return b
	}
}

func TestSwapAnswersAsTheModelSays(t *testing.T) {
	each(t, everyWay, func(t *testing.T, s *store) { drivertest.Model(t, s.swapping(t)) })
}
