package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/sqllock"
)

// TestOneConnectionServesWaitersAndHolders has eight waiters in line on the only
// connection while holders renew and leave: a waiter that kept it would block them.
func TestOneConnectionServesWaitersAndHolders(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		b := s.backendOn(t, s.one(t))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				ticket, err := b.Enter(soon(t), claim("k"))
				for err == nil && !ticket.Granted {
					if err = renew(b, soon(t), ticket); err == nil {
						ticket, err = b.Await(soon(t), ticket)
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					steps.OK(t, renew(b, soon(t), ticket))
				}
				leave(t, b, ticket)
			})
		}
		wg.Wait()
		empty(t, b)
	})
}

// TestWaiterWithoutConnectionKeepsToItsContext holds the only connection itself. On a server Enter alone waits for it,
// as in TestFullPoolNamesItself.
func TestWaiterWithoutConnectionKeepsToItsContext(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		db := s.one(t)
		b, other := s.backendOn(t, db), s.polling(t)
		holder := hold(t, other, claim("k"))
		w := wait(t, b, claim("k"))
		conn, err := db.Conn(soon(t))
		must(t, err)
		cutShort(t, verbs(b, w))
		conn.Close()
		leave(t, other, holder)
		leave(t, b, granted(t, b, w))
		empty(t, b)
	})
}

// cutShort makes calls that cannot get through, and wants each to return soon after
// its context ends.
func cutShort(t *testing.T, calls map[string]func(ctx context.Context) error) {
	t.Helper()
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		began := time.Now()
		steps.Is(t, name+" that cannot get through", call(ctx), context.DeadlineExceeded)
		steps.TookAtMost(t, began, time.Minute) // the driver may wait for ten
		cancel()
	}
}

// TestLongTransactionOfTheProgramIsWaitedFor holds SQLite's write lock, as a program
// does in a transaction of its own, with DSNs that make the driver wait or not.
func TestLongTransactionOfTheProgramIsWaitedFor(t *testing.T) {
	each(t, []kind{
		sqlite.with("NoBusyTimeout", "file:%s?_pragma=journal_mode(WAL)"),
		sqlite.with("LongBusyTimeout", "file:%s?_pragma=journal_mode(WAL)&_pragma=busy_timeout(600000)"),
		sqlite.with("RollbackJournal", "file:%s"),
		sqlite.with("ImmediateTxlock", "file:%s?_pragma=journal_mode(WAL)&_txlock=immediate"),
		sqlite.with("ExclusiveRollback", "file:%s?_txlock=exclusive&_pragma=busy_timeout(600000)"),
	}, func(t *testing.T, s *store) {
		b := s.backend(t)
		holder := hold(t, b, claim("held"))
		wait(t, b, claim("held"))
		x := s.openDSN(t, "file:"+s.name)
		x.SetMaxOpenConns(1)
		run(t, x, "BEGIN IMMEDIATE")
		calls := verbs(b, holder)
		delete(calls, "Await") // they only read
		delete(calls, "Line")
		delete(calls, "Lines")
		calls["Enter of a free lock"] = func(ctx context.Context) error { return second(b.Enter(ctx, claim("free"))) }
		cutShort(t, calls)
		entered := behind(func() error { return second(b.Enter(soon(t), claim("later"))) })
		run(t, x, "ROLLBACK")
		well(t, "Enter after the program's transaction", <-entered)
		leaveAll(t, b)
	})
}

// TestCancelledCallLetsGoOfItsConnection ends contexts of steps that wait for the lock on
// a line, on the only connection.
func TestCancelledCallLetsGoOfItsConnection(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		b := s.backendOn(t, s.one(t))
		holder := s.recorded(t, b, hold(t, b, claim("k"))) // a renewal needs no row of the line
		x := s.begin(t, "SELECT * FROM fencelock_swap FOR UPDATE")
		calls := verbs(b, holder)
		for _, name := range []string{"Await", "Renew", "Line", "Lines"} { // these do not wait for the line
			delete(calls, name)
		}
		cutShort(t, calls)
		well(t, "Renew beside steps that were given up", renew(b, soon(t), holder))
		x.end()
		// The server goes on with what had waited for the line, also for a client that hung up.
		until(t, "no statement goes on", func() bool {
			return 0 == ask[int](t, s, "SELECT count(*) FROM pg_stat_activity "+
				"WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'")
		})
		leaveAll(t, b)
	})
}

// TestLateStatementKeepsItsSession: the caller of an Enter that waits for a line leaves. The session
// has the line soon after that, and serves the next call: a server that is busy would need longer
// than callers have to begin another. A machine may stand still for longer than a statement goes
// on after its caller, so there are several rounds.
func TestLateStatementKeepsItsSession(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		db := s.open(t)
		db.SetMaxOpenConns(2)
		b := s.backendOn(t, db)
		leave(t, b, hold(t, b, claim("k")))
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			before := s.session(t, db)
			x := s.begin(t, lockLine)
			late := claim("k")
			cutShort(t, map[string]func(ctx context.Context) error{
				"Enter": func(ctx context.Context) error { return second(b.Enter(ctx, late)) },
			})
			x.end()
			until(t, "no statement goes on", func() bool { return db.Stats().InUse == 0 })
			after := s.session(t, db)
			if err := b.Leave(soon(t), driver.Ticket{Claim: late}, driver.Exit{Tombstone: true}); !driver.Gone(err) {
				must(t, err)
			}
			empty(t, b)
			if after == before {
				return
			}
		}
		t.Error("each call that was given up took its session along")
	})
}

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
		txs := fill(t, db, n)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
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
			says(t, name, <-answer, context.Canceled, "connections of the *sql.DB")
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
