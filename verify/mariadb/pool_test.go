package mariadb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// TestOneConnectionServesWaitersAndHolders has eight waiters in line on the only
// connection while holders renew and leave: a waiter that kept it would block them.
func TestOneConnectionServesWaitersAndHolders(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
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
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
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
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	db.SetMaxOpenConns(1)
	b := backend(t, db)
	holder := hold(t, b, claim("k"))
	w := wait(t, b, claim("k"))
	conn, err := db.Conn(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	cutShort(t, map[string]func(ctx context.Context) error{
		"Await": func(ctx context.Context) error { return second(b.Await(ctx, w)) },
		"Enter": func(ctx context.Context) error { return second(b.Enter(ctx, claim("other"))) },
		"Leave": func(ctx context.Context) error { return b.Leave(ctx, holder, driver.Exit{}) },
		"Renew": func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{holder})[0] },
		"Break": func(ctx context.Context) error { return b.Break(ctx, "k", holder.Token, "") },
		"Line":  func(ctx context.Context) error { return second(b.Line(ctx, "k")) },
	})
	conn.Close()
	leave(t, b, holder)
	leave(t, b, granted(t, b, w))
	empty(t, b)
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
