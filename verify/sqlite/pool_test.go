package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestOneConnectionServesWaitersAndHolders has eight waiters in line on the only
// connection while holders renew and leave: a waiter that kept it would block them.
func TestOneConnectionServesWaitersAndHolders(t *testing.T) {
	db := openFile(t, newFile(t))
	db.SetMaxOpenConns(1)
	b := backend(t, db)
	ctx := soon(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c := claim("k")
			ticket, err := b.Enter(ctx, c)
			for err == nil && !ticket.Granted {
				if err = b.Renew(ctx, []driver.Ticket{ticket})[0]; err == nil {
					ticket, err = b.Await(ctx, ticket)
				}
			}
			for range 3 {
				if err == nil {
					err = b.Renew(ctx, []driver.Ticket{ticket})[0]
				}
			}
			if err == nil {
				err = b.Leave(ctx, ticket, driver.Exit{})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	empty(t, b)
}

// TestLinesHoldsNoConnection uses the only connection inside of the loop.
func TestLinesHoldsNoConnection(t *testing.T) {
	db := openFile(t, newFile(t))
	db.SetMaxOpenConns(1)
	b := backend(t, db)
	held := map[string]driver.Ticket{}
	for i := range 10 {
		key := fmt.Sprint("k", i)
		held[key] = hold(t, b, claim(key))
	}
	for l, err := range b.Lines(soon(t), "k") {
		if err != nil {
			t.Fatal(err)
		}
		leave(t, b, held[l.Key])
		delete(held, l.Key)
	}
	if len(held) > 0 {
		t.Errorf("Lines did not yield %d of 10 lines", len(held))
	}
	empty(t, b)
}

// TestWaiterWithoutConnectionKeepsToItsContext holds the only connection itself.
func TestWaiterWithoutConnectionKeepsToItsContext(t *testing.T) {
	db := openFile(t, newFile(t))
	db.SetMaxOpenConns(1)
	b := backend(t, db)
	holder := hold(t, b, claim("k"))
	w := wait(t, b, claim("k"))
	conn, err := db.Conn(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	for name, err := range map[string]error{
		"Await": second(b.Await(ctx, w)),
		"Enter": second(b.Enter(ctx, claim("other"))),
		"Leave": b.Leave(ctx, holder, driver.Exit{}),
		"Renew": b.Renew(ctx, []driver.Ticket{holder})[0],
		"Break": b.Break(ctx, "k", holder.Token, ""),
	} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s without a connection answered %v; want the end of its context", name, err)
		}
	}
	conn.Close()
	leave(t, b, holder)
	leave(t, b, granted(t, b, w))
	empty(t, b)
}

func second[T any](_ T, err error) error { return err }

// TestLongTransactionOfTheProgramIsWaitedFor holds SQLite's write lock, as a program
// does in a transaction of its own, with DSNs that make the driver wait or not.
func TestLongTransactionOfTheProgramIsWaitedFor(t *testing.T) {
	for name, tail := range map[string]string{
		"NoBusyTimeout":     "?_pragma=journal_mode(WAL)",
		"LongBusyTimeout":   "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)",
		"RollbackJournal":   "",
		"ImmediateTxlock":   "?_pragma=journal_mode(WAL)&_txlock=immediate",
		"ExclusiveRollback": "?_txlock=exclusive&_pragma=busy_timeout(60000)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			db := openDSN(t, "file:"+path+tail)
			b := backend(t, db)
			holder := hold(t, b, claim("held"))
			w := wait(t, b, claim("held"))
			program, err := openDSN(t, "file:"+path).Conn(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			defer program.Close()
			if _, err := program.ExecContext(soon(t), "BEGIN IMMEDIATE"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			for what, err := range map[string]error{
				"Enter of a free lock": second(b.Enter(ctx, claim("free"))),
				"Enter of a held lock": second(b.Enter(ctx, claim("held"))),
				"Renew":                b.Renew(ctx, []driver.Ticket{holder})[0],
				"Leave":                b.Leave(ctx, holder, driver.Exit{}),
			} {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s beside a transaction of the program answered %v; want the end of its context", what, err)
				}
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("calls went on for %v after their context had ended", took)
			}
			done := make(chan error, 1)
			go func() { done <- second(b.Enter(soon(t), claim("later"))) }()
			if _, err := program.ExecContext(soon(t), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Errorf("Enter after the program's transaction: %v", err)
			}
			leaveAll(t, b, "")
			_, _ = w, holder
		})
	}
}

// leaveAll breaks whatever is in line, and must find nothing then.
func leaveAll(t testing.TB, b *sqllock.Backend, prefix string) {
	t.Helper()
	for l, err := range b.Lines(soon(t), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range l.Claims {
			if err := b.Break(soon(t), l.Key, s.Token, "end of test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	empty(t, b)
}
