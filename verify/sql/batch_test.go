package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Many steps are under way if there are so many.
const busySteps = 4

var busyBackends atomic.Int32

// keepBusy has b wait for rows until the end of the test, with as many steps as make it take and give
// up free locks in batches.
func (s *store) keepBusy(t testing.TB, b driver.Backend) {
	t.Helper()
	name := fmt.Sprintf("busy %d ", busyBackends.Add(1))
	for i := range busySteps {
		use(t, b, name+fmt.Sprint(i))
	}
	const lines = "convert_from(key, 'UTF8') LIKE ? || '%'"
	own := *s
	own.db = s.open(t) // the laws that run at the same time need more connections than one pool has
	x := own.begin(t)
	x.do("SELECT FROM fencelock_line WHERE "+lines+" FOR UPDATE", name)
	var steps sync.WaitGroup
	for i := range busySteps {
		steps.Go(func() {
			_, _ = b.Enter(context.Background(), claim(name+fmt.Sprint(i))) // Close may end it
		})
	}
	t.Cleanup(func() {
		x.undo()
		steps.Wait()
		own.do(t, "DELETE FROM fencelock_line WHERE "+lines, name)
	})
	x.blocks(busySteps)
}

// busyOn is a busy Backend, on a driver that counts the statements that contain about.
func (s *store) busyOn(t testing.TB, about string) (driver.Backend, *mask) {
	t.Helper()
	m := s.mask(t, about)
	db := sql.OpenDB(m)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	b := s.backendOn(t, db)
	s.keepBusy(t, b)
	return b, m
}

// each calls f for n keys at once.
func eachKey(n int, f func(key string)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(fmt.Sprintf("key %d", i)) })
	}
	all.Wait()
}

func TestFreeLocksGoInBatches(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		const keys, rounds = 64, 10
		b, m := s.busyOn(t, "fencelock_enter")
		eachKey(keys, func(key string) { use(t, b, key) }) // makes the lines
		m.sent.Store(0)
		eachKey(keys, func(key string) {
			var last int64
			for range rounds {
				ticket := hold(t, b, claim(key))
				if ticket.Token <= last {
					t.Errorf("%q was granted with token %d after %d", key, ticket.Token, last)
				}
				last = ticket.Token
				leave(t, b, ticket)
			}
		})
		if n := m.sent.Load(); n > keys*rounds/2 {
			t.Errorf("%d free locks took %d statements; want many in each", keys*rounds, n)
		}
	})
}

// A row that another transaction is at, of the user's perhaps, makes its own lock wait alone. Here
// there are as many of them as batches may be under way.
func TestBatchWaitsForNoRow(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		b, _ := s.busyOn(t, "fencelock_enter_free")
		eachKey(20, func(key string) { use(t, b, key) })
		x := s.begin(t, "SELECT FROM fencelock_line WHERE key IN ('key 7', 'key 8') FOR UPDATE")
		var claims []driver.Claim
		var stuck []<-chan error
		for i, key := range []string{"key 7", "key 8"} {
			c := claim(key)
			claims = append(claims, c)
			stuck = append(stuck, behind(func() error { return second(b.Enter(soon(t), c)) }))
			x.blocks(i + 1)
		}
		eachKey(20, func(key string) {
			if key != "key 7" && key != "key 8" {
				use(t, b, key)
			}
		})
		x.undo()
		for i, c := range claims {
			well(t, "Enter", <-stuck[i])
			leave(t, b, driver.Ticket{Claim: c})
		}
	})
}

// A row that is not there, though claims are in the line, is made by the step that reads them.
func TestBatchMakesNoLineOverClaims(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		b, m := s.busyOn(t, "fencelock_enter_free")
		holder := hold(t, b, reader("k"))
		second := hold(t, b, reader("k")) // moves the first one out of the row of the line
		s.do(t, "DELETE FROM fencelock_line WHERE key = 'k'")
		asked := m.asked.Load()
		c := claim("k")
		waiter := wait(t, b, c)
		if m.asked.Load() == asked {
			t.Error("the third claim was in no batch: this tests nothing")
		}
		leave(t, b, holder, second)
		leave(t, b, granted(t, b, waiter))
	})
}

// An answer that is lost leaves open what became of each lock of the batch.
func TestBatchWhoseAnswerIsLost(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		b, m := s.busyOn(t, "_free")
		const keys = 20
		eachKey(keys, func(key string) { use(t, b, key) })
		var unknown atomic.Int32
		m.breaks.Store(1)
		eachKey(keys, func(key string) {
			c := claim(key)
			ticket, err := b.Enter(soon(t), c)
			switch {
			case err == nil:
				leave(t, b, ticket)
			case permanent(err) || driver.Gone(err):
				t.Errorf("Enter on %q answered %v; want an error that leaves its outcome open", key, err)
			default:
				unknown.Add(1)
				well(t, key, b.Leave(soon(t), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}))
				if _, err := b.Enter(soon(t), c); !driver.Gone(err) {
					t.Errorf("the claim on %q that has left entered: %v", key, err)
				}
			}
			use(t, b, key) // nobody is there
		})
		if unknown.Load() == 0 {
			t.Error("no answer was lost: this tests nothing")
		}

		unknown.Store(0)
		tickets := make(chan driver.Ticket, keys)
		eachKey(keys, func(key string) { tickets <- hold(t, b, claim(key)) })
		m.breaks.Store(1)
		eachKey(keys, func(string) {
			ticket := <-tickets
			if err := b.Leave(soon(t), ticket, driver.Exit{}); permanent(err) || driver.Gone(err) {
				t.Errorf("Leave on %q answered %v; want an error that leaves its outcome open", ticket.Key, err)
			} else if err != nil {
				unknown.Add(1)
			}
			if err := b.Leave(soon(t), ticket, driver.Exit{}); err != nil && !driver.Gone(err) {
				t.Errorf("a second Leave on %q: %v", ticket.Key, err)
			}
			use(t, b, ticket.Key)
		})
		if unknown.Load() == 0 {
			t.Error("no answer was lost: this tests nothing")
		}
	})
}

// Who does not wait for a batch any more is free at once, and a tombstone keeps out what the batch
// would bring later.
func TestCallerWhoLeavesABatch(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		b, m := s.busyOn(t, "fencelock_enter_free")
		use(t, b, "k")
		m.late = make(chan struct{})
		asked := m.asked.Load()
		c := claim("k")
		ctx, cancel := context.WithCancel(soon(t))
		entered := behind(func() error { return second(b.Enter(ctx, c)) })
		until(t, "the batch is about to be sent", func() bool { return m.asked.Load() > asked })
		cancel()
		if err := <-entered; !errors.Is(err, context.Canceled) {
			t.Errorf("Enter answered %v; want the end of its context", err)
		}
		gone(t, "Leave", b.Leave(soon(t), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}))
		sent := m.sent.Load()
		close(m.late)
		until(t, "the batch is sent", func() bool { return m.sent.Load() > sent })
		use(t, b, "k")
		gone(t, "a second Enter", second(b.Enter(soon(t), c)))
	})
}

// A server that leaves batches without an answer holds others up no longer than the callers of
// those batches wait.
func TestBatchEndsWithItsLastCaller(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		b, m := s.busyOn(t, "fencelock_enter_free")
		keys := []string{"k0", "k1"} // as many as batches may be under way
		for _, key := range append(keys, "other") {
			use(t, b, key)
		}
		asked := m.asked.Load()
		m.hangs.Store(int32(len(keys)))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var entered []<-chan error
		for i, key := range keys {
			c := claim(key)
			entered = append(entered, behind(func() error { return second(b.Enter(ctx, c)) }))
			until(t, "the batch is sent", func() bool { return m.asked.Load() == asked+int32(i)+1 })
		}
		for i, answer := range entered {
			if err := <-answer; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Enter on %q answered %v; want the end of its context", keys[i], err)
			}
		}
		ctx, cancel = context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		ticket, err := b.Enter(ctx, claim("other"))
		if err != nil {
			t.Fatalf("Enter behind two batches that were given up: %v", err)
		}
		leave(t, b, ticket)
	})
}
