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
	"github.com/fencelock/fencelock/drivertest/steps"
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
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "connections of the *sql.DB") {
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
// first lock is renewed and released all the same, and what cannot go on says why.
func TestTransactionsThatWaitForALockKeepNoLeaseFromItsRenewal(t *testing.T) {
	onPools(t, []int{1, 2, 5}, func(t *testing.T, s *store, db *sql.DB) {
		n := db.Stats().MaxOpenConnections
		c := testclient.New(t, s.backendOn(t, db), nil)
		mine, err := c.Lock(soon(t), "mine")
		must(t, err)
		other := s.polling(t)
		theirs := hold(t, other, claim("theirs"))

		var waiting []<-chan error
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		txs := fill(t, db, n)
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
				t.Errorf("the lock that waited returned %v; want ErrUnavailable", err)
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
		steps.Same(t, "connections are still in use after Close", db.Stats().InUse, 0)
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
		txs := fill(t, db, n)
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

// TestFullPoolNamesItself: transactions of the program have all connections, and a call that neither keeps nor ends a
// claim gets none.
func TestFullPoolNamesItself(t *testing.T) {
	onPools(t, []int{1, 2, 3}, func(t *testing.T, s *store, db *sql.DB) {
		b := s.backendOn(t, db)
		empty(t, b)
		txs := fill(t, db, db.Stats().MaxOpenConnections)
		first := s.new(t, db, &sqllock.Options{CreateTables: true})
		for name, call := range map[string]func(context.Context) error{
			"Enter":                       func(ctx context.Context) error { return second(b.Enter(ctx, claim("free"))) },
			"the first call of a Backend": func(ctx context.Context) error { return second(first.Line(ctx, "free")) },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			before := db.Stats().WaitCount
			answer := behind(func() error { return call(ctx) })
			until(t, name+" waits for a connection", func() bool { return db.Stats().WaitCount > before })
			cancel()
			namesPool(t, name, <-answer)
		}
		for _, tx := range txs {
			must(t, tx.Rollback())
		}
		empty(t, b)
	})
}

// TestBoundOfThePoolIsSetAfterTheFirstLock: from then on the program has all connections that it has asked for, and
// the pool has no more of them, but for one while transactions of the program have all. On SQLite such transactions
// have the file, too.
func TestBoundOfThePoolIsSetAfterTheFirstLock(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		for _, bounds := range [][2]int{{0, 1}, {0, 2}, {0, 5}, {1, 1}, {1, 3}, {5, 1}} {
			db, most := s.poolOf(t, bounds[0]), bounds[1]
			c := testclient.New(t, s.backendOn(t, db), nil)
			mine, err := c.Lock(soon(t), "mine")
			must(t, err)
			db.SetMaxOpenConns(most)
			for range 2 {
				var conns []*sql.Conn
				for range most {
					conn, err := db.Conn(soon(t))
					if err != nil {
						t.Fatalf("of %d connections, bounded to %d after the lock, the program got %d: %v",
							bounds[0], most, len(conns), err)
					}
					conns = append(conns, conn)
				}
				if s.on != nil {
					well(t, "a renewal while the program has all connections", mine.Renew(soon(t)))
				}
				for _, conn := range conns {
					must(t, conn.Close())
				}
				well(t, "a renewal", mine.Renew(soon(t)))
				use(t, s.backendOn(t, db), "other")
			}
			well(t, "a release", mine.Release(soon(t)))
			until(t, "a connection is in use after the release", func() bool { return db.Stats().InUse == 0 }) // for news
			if st := db.Stats(); st.MaxOpenConnections != most || st.OpenConnections > most {
				t.Errorf("the program has set a bound of %d, and the pool has %+v", most, st)
			}
			must(t, db.Close())
		}
	})
}
