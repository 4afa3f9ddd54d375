package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/sqllock"
)

// fill begins transactions until the pool has no connection left.
func fill(t *testing.T, db *sql.DB) (txs []*sql.Tx) {
	t.Helper()
	for db.Stats().InUse < db.Stats().MaxOpenConnections {
		tx, err := db.BeginTx(context.Background(), nil)
		must(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		txs = append(txs, tx)
	}
	return txs
}

// poolOf opens a pool of at most n connections.
func (s *store) poolOf(t *testing.T, n int) *sql.DB {
	t.Helper()
	db := s.open(t)
	db.SetMaxOpenConns(n)
	return db
}

// namesPool must be an error of a context that says what the program has done.
func namesPool(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connections of the *sql.DB") {
		t.Errorf("%s: %v; want the end of its context, and that the program has all connections", what, err)
	}
}

// TestTransactionsThatWaitForALockKeepNoLeaseFromItsRenewal: a program with a pool of five holds a
// lock. Goroutines with transactions have all other connections, and wait for a second lock. The
// first lock is renewed and released all the same, and what cannot go on says why.
func TestTransactionsThatWaitForALockKeepNoLeaseFromItsRenewal(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		db := s.poolOf(t, 5)
		c := testclient.New(t, s.backendOn(t, db), nil)
		mine, err := c.Lock(soon(t), "mine")
		must(t, err)
		other := s.polling(t)
		theirs := hold(t, other, claim("theirs"))

		var waiting []<-chan error
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		txs := fill(t, db)
		for range txs {
			waiting = append(waiting, behind(func() error { return second(c.Lock(ctx, "theirs")) }))
		}
		for range 3 {
			well(t, "a renewal while transactions have all connections", mine.Renew(soon(t)))
		}
		named := 0 // the others wait behind one of them
		for _, w := range waiting {
			err := <-w
			if !errors.Is(err, fencelock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the store was not asked, and the answer is %v", err)
			}
			if strings.Contains(err.Error(), "connections of the *sql.DB") {
				named++
			}
		}
		if named == 0 {
			t.Error("nobody is told that transactions have all connections")
		}
		well(t, "a release while transactions have all connections", mine.Release(soon(t)))
		use(t, other, "mine")
		leave(t, other, theirs)
		for _, tx := range txs {
			must(t, tx.Rollback())
		}
		must(t, c.Close())
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are still in use after Close", n)
		}
	})
}

// TestWaiterIsGrantedWhileTransactionsHaveAllConnections: its claim is in line, and renewed. If
// it did not hear of its grant, nobody else would get the lock.
func TestWaiterIsGrantedWhileTransactionsHaveAllConnections(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		db := s.poolOf(t, 3)
		b := s.backendOn(t, db)
		mine := hold(t, b, claim("mine"))
		other := s.polling(t)
		theirs := hold(t, other, claim("theirs"))
		w := wait(t, b, claim("theirs"))
		txs := fill(t, db)
		leave(t, other, theirs)
		w = granted(t, b, w)
		renewed(t, b, mine, w)
		leave(t, b, mine, w)
		for _, tx := range txs {
			must(t, tx.Rollback())
		}
		empty(t, b)
	})
}

// TestSmallPoolNamesItself: a pool of one or two has no connection to spare. Every verb says that
// the program has them all.
func TestSmallPoolNamesItself(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		for n := 1; n <= 2; n++ {
			db := s.poolOf(t, n)
			b := s.backendOn(t, db)
			mine := hold(t, b, claim("mine"))
			txs := fill(t, db)
			if len(txs) != n {
				t.Fatalf("the program got %d connections of its pool of %d", len(txs), n)
			}
			for name, call := range map[string]func(context.Context) error{
				"Enter": func(ctx context.Context) error { return second(b.Enter(ctx, claim("free"))) },
				"Renew": func(ctx context.Context) error { return renew(b, ctx, mine) },
				"Leave": func(ctx context.Context) error { return b.Leave(ctx, mine, driver.Exit{}) },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				namesPool(t, name, call(ctx))
				cancel()
			}
			first := s.new(t, db, &sqllock.Options{CreateTables: true})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			namesPool(t, "the first call of a Backend", second(first.Line(ctx, "mine")))
			cancel()
			for _, tx := range txs {
				must(t, tx.Rollback())
			}
			leaveAll(t, b)
			must(t, b.Close())
		}
	})
}

// TestBrokenSpareConnectionIsReplaced: the server ends the connection that renewals have.
func TestBrokenSpareConnectionIsReplaced(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		db := s.poolOf(t, 4)
		b := s.backendOn(t, db)
		mine := hold(t, b, claim("mine"))
		for range 3 {
			for _, id := range column[int64](t, s.db, s.sql("{sessions}")) {
				s.kill(t, id)
			}
			until(t, "the lease is renewed", func() bool { return renew(b, soon(t), mine) == nil })
			txs := fill(t, db)
			if len(txs) != 3 {
				t.Errorf("the program got %d connections of its pool of four; want that one is kept", len(txs))
			}
			renewed(t, b, mine)
			for _, tx := range txs {
				must(t, tx.Rollback())
			}
		}
		leave(t, b, mine)
	})
}
