package sql_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
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

// TestLinesHoldsNoConnection uses the only connection inside of the loop.
func TestLinesHoldsNoConnection(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		b := s.backendOn(t, s.one(t))
		for i := range 10 {
			hold(t, b, claim(fmt.Sprint("k", i)))
		}
		n := 0
		for l, err := range b.Lines(soon(t), "k") {
			must(t, err)
			must(t, b.Break(soon(t), l.Key, l.Claims[0].Token, driver.Break{}))
			n++
		}
		if n != 10 {
			t.Errorf("Lines yielded %d of 10 lines", n)
		}
		empty(t, b)
	})
}

// TestWaiterWithoutConnectionKeepsToItsContext holds the only connection itself. On a server Enter alone waits for it.
func TestWaiterWithoutConnectionKeepsToItsContext(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		db := s.one(t)
		b, other := s.backendOn(t, db), s.polling(t)
		holder := hold(t, other, claim("k"))
		w := wait(t, b, claim("k"))
		conn, err := db.Conn(soon(t))
		must(t, err)
		calls := verbs(b, w)
		if s.on != nil {
			calls = map[string]func(context.Context) error{"Enter": calls["Enter"]}
		}
		cutShort(t, calls)
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
		err := call(ctx)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s went on for %v after its context had ended", name, took)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s that cannot get through answered %v; want the end of its context", name, err)
		}
		cancel()
	}
}

// TestLongTransactionOfTheProgramIsWaitedFor holds SQLite's write lock, as a program
// does in a transaction of its own, with DSNs that make the driver wait or not.
func TestLongTransactionOfTheProgramIsWaitedFor(t *testing.T) {
	each(t, []kind{
		sqlite.with("NoBusyTimeout", "file:%s?_pragma=journal_mode(WAL)"),
		sqlite.with("LongBusyTimeout", "file:%s?_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)"),
		sqlite.with("RollbackJournal", "file:%s"),
		sqlite.with("ImmediateTxlock", "file:%s?_pragma=journal_mode(WAL)&_txlock=immediate"),
		sqlite.with("ExclusiveRollback", "file:%s?_txlock=exclusive&_pragma=busy_timeout(60000)"),
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
		for range 5 {
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
