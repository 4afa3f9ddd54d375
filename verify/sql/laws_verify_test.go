//go:build verify

package sql_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/swaplock"
)

// stepLaws are the laws of what a claim goes through. The others are about keys, limits and
// looks, which are the same however a database is opened.
var stepLaws = drivertest.Topics("Grant", "Token", "Lease", "Expiry", "Leave", "Break", "Mark", "Linger", "Kind",
	"Wake", "Context", "Close", "Concurrent")

// TestLawsOnOneConnection has all views share one connection, and ask for news.
func TestLawsOnOneConnection(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		db := s.one(t)
		laws(t, func(t *testing.T) driver.Backend { return awaitsAgain{s.backendOn(t, db)} }, stepLaws)
	})
}

// awaitsAgain calls Await again when its reading has not got the connection in five seconds,
// as the core does. The laws about concurrency have two hundred goroutines want the one
// connection, and database/sql serves them in random order.
type awaitsAgain struct{ *sqllock.Backend }

func (b awaitsAgain) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	for {
		got, err := b.Backend.Await(ctx, t)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "the database was busy for ") {
			return got, err
		}
	}
}

// TestLawsWithoutAnyPragma opens a bare path, and a file that keeps its rollback
// journal because it is in use already.
func TestLawsWithoutAnyPragma(t *testing.T) {
	only(t, barePath, func(t *testing.T, s *store) {
		run(t, s.open(t), "CREATE TABLE app_x (x)")
		laws(t, func(t *testing.T) driver.Backend { return s.backend(t) }, stepLaws)
		var mode string
		// A connection that has been open since would say what it knew then.
		if err := s.open(t).QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "delete" {
			t.Errorf("the journal mode of the program's file is %q, %v; want it as it was", mode, err)
		}
	})
}

// TestLawsWithBusyTimeout lets SQLite wait inside of its statements.
func TestLawsWithBusyTimeout(t *testing.T) {
	const dsn = "file:%s?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate"
	only(t, sqlite.with("BusyTimeout", dsn), func(t *testing.T, s *store) {
		laws(t, func(t *testing.T) driver.Backend { return s.backend(t) }, stepLaws)
	})
}

// TestLawsWithLibPQ is for programs that have github.com/lib/pq: it sends arguments in another
// way than pgx, or in two, and listens by itself.
func TestLawsWithLibPQ(t *testing.T) {
	each(t, []kind{postgres, postgres.with("BinaryParameters", "binary_parameters=yes")}, func(t *testing.T, s *store) {
		s.driver = "postgres"
		laws(t, func(t *testing.T) driver.Backend {
			return s.new(t, s.open(t), &sqllock.Options{CreateTables: true, Listen: pqListen(s.dsn)})
		})
	})
}

// losing loses every other swap, as if another process had written first.
type losing struct{ *swapsql.Store }

func (s losing) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	if rand.IntN(2) == 0 {
		return "", ctx.Err()
	}
	return s.Store.Swap(ctx, key, c)
}

// Where swaps are lost, others are asked by messages to do the step.
func TestSwapAnswersAsTheModelSaysWhenSwapsAreLost(t *testing.T) {
	each(t, []kind{postgres, pgBouncer, mariaDB}, func(t *testing.T, s *store) {
		use(t, s.backend(t), "tables")
		drivertest.Model(t, func(t *testing.T) driver.Backend {
			b := swaplock.New(losing{swapStore(s.open(t), s.dialect)})
			t.Cleanup(func() { b.Close() })
			return b
		}, 1, 2)
	})
}
