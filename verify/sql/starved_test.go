package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/sqllock"
)

// fill begins the n transactions that the program can have, and then the pool has no connection left.
func fill(t *testing.T, db *sql.DB, n int) (txs []*sql.Tx) {
	t.Helper()
	for range n {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		txs = append(txs, tx)
	}
	until(t, "the pool is full", func() bool { return db.Stats().InUse == db.Stats().MaxOpenConnections })
	return txs
}

// forProgram is how many connections of a pool of n the program has while backends have a grant each.
func forProgram(n, backends int) int {
	if n < 3 {
		return n // theirs come on top
	}
	return n - backends
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

// onPools runs a test on pools of so many connections.
func onPools(t *testing.T, sizes []int, f func(t *testing.T, s *store, db *sql.DB)) {
	each(t, onServers, func(t *testing.T, s *store) {
		for _, n := range sizes {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				s := s.kind.store(t)
				f(t, s, s.poolOf(t, n))
			})
		}
	})
}

// TestTransactionsThatWaitForALockKeepNoLeaseFromItsRenewal: a program holds a
// lock. Goroutines with transactions have all other connections, and wait for a second lock. The
// first lock is renewed and released all the same, and what cannot go on says why. On a small pool
// they have all connections of the program, and stand in line.
func TestTransactionsThatWaitForALockKeepNoLeaseFromItsRenewal(t *testing.T) {
	onPools(t, []int{1, 2, 5}, func(t *testing.T, s *store, db *sql.DB) {
		n := db.Stats().MaxOpenConnections
		small := n < 3
		c := testclient.New(t, s.backendOn(t, db), nil)
		mine, err := c.Lock(soon(t), "mine")
		must(t, err)
		other := s.polling(t)
		theirs := hold(t, other, claim("theirs"))

		var waiting []<-chan error
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		txs := fill(t, db, forProgram(n, 1))
		for range txs {
			waiting = append(waiting, behind(func() error { return second(c.Lock(ctx, "theirs")) }))
		}
		for range 3 {
			well(t, "a renewal while transactions have all connections", mine.Renew(soon(t)))
		}
		named := 0 // the others wait behind one of them
		for _, w := range waiting {
			err := <-w
			want := fencelock.ErrUnavailable
			if small {
				want = fencelock.ErrNotAcquired
			}
			if !errors.Is(err, want) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the lock that waited returned %v; want %v", err, want)
			}
			if strings.Contains(err.Error(), "connections of the *sql.DB") {
				named++
			}
		}
		if !small && named == 0 {
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
	onPools(t, []int{1, 2, 3}, func(t *testing.T, s *store, db *sql.DB) {
		n := db.Stats().MaxOpenConnections
		b := s.backendOn(t, db)
		mine := hold(t, b, claim("mine"))
		other := s.polling(t)
		theirs := hold(t, other, claim("theirs"))
		w := wait(t, b, claim("theirs"))
		txs := fill(t, db, forProgram(n, 1))
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

// TestFullPoolNamesItself: transactions of the program have all connections before a Backend has had
// a grant.
func TestFullPoolNamesItself(t *testing.T) {
	onPools(t, []int{1, 2, 3}, func(t *testing.T, s *store, db *sql.DB) {
		b := s.backendOn(t, db)
		empty(t, b)
		txs := fill(t, db, db.Stats().MaxOpenConnections)
		first := s.new(t, db, &sqllock.Options{CreateTables: true})
		for name, call := range map[string]func(context.Context) error{
			"Enter":                       func(ctx context.Context) error { return second(b.Enter(ctx, claim("free"))) },
			"Line":                        func(ctx context.Context) error { return second(b.Line(ctx, "free")) },
			"the first call of a Backend": func(ctx context.Context) error { return second(first.Line(ctx, "free")) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			namesPool(t, name, call(ctx))
			cancel()
		}
		for _, tx := range txs {
			must(t, tx.Rollback())
		}
		empty(t, b)
	})
}

// TestBoundOfASmallPoolIsPutBack: the connection on top of a small pool goes with the Backend.
func TestBoundOfASmallPoolIsPutBack(t *testing.T) {
	onPools(t, []int{1, 2, 3}, func(t *testing.T, s *store, db *sql.DB) {
		n := db.Stats().MaxOpenConnections
		b, other := s.backendOn(t, db), s.backendOn(t, db)
		use(t, b, "k")
		use(t, other, "k")
		for _, tx := range fill(t, db, forProgram(n, 2)) {
			must(t, tx.Rollback())
		}
		must(t, other.Close())
		must(t, b.Close())
		if most := db.Stats().MaxOpenConnections; most != n {
			t.Errorf("the pool had %d connections at most, and has %d now", n, most)
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
			txs := fill(t, db, forProgram(4, 1))
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
