package sql_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// ownServer starts a server that one test alone uses.
func ownServer(t testing.TB, k kind, opts ...testserver.Option) *store {
	t.Helper()
	if k.dialect == sqllock.MySQL {
		return k.storeOn(t, testserver.MariaDB(t, opts...))
	}
	return k.storeOn(t, testserver.Postgres(t, opts...))
}

// eachServer runs a test on servers of its own.
func eachServer(t *testing.T, kinds []kind, f func(t *testing.T, s *store)) {
	t.Helper()
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			f(t, ownServer(t, k))
		})
	}
}

// fourWorkers has four workers take a lock from each other, through outages, until stop is called.
func fourWorkers(t *testing.T, bs ...*sqllock.Backend) (held *atomic.Int64, stop func()) {
	held = new(atomic.Int64)
	var inside atomic.Int64
	var ended atomic.Bool
	var wg sync.WaitGroup
	for i := range 4 {
		b := bs[i%len(bs)]
		wg.Go(func() {
			for !ended.Load() && !t.Failed() {
				w := granted(t, b, steps.PersistEnter(t, b, claim("busy")))
				steps.Same(t, "how many are inside at once", inside.Add(1), 1)
				held.Add(1)
				inside.Add(-1)
				steps.PersistLeave(t, b, w)
			}
		})
	}
	return held, func() { ended.Store(true); wg.Wait() }
}

// TestServerRestartKeepsClaims kills the server as kill -9 does, under a holder, a waiter, and
// others that come and go.
func TestServerRestartKeepsClaims(t *testing.T) {
	eachServer(t, []kind{postgres, mariaDB}, func(t *testing.T, s *store) { restarts(t, s, s.on, true) })
	// A PgBouncer that ends, and one whose server does: it waits before it tries again.
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		s := ownServer(t, postgres.with("PgBouncer", pgBouncer.params...))
		s.pooled = true
		front := testserver.PgBouncer(t, s.on, testserver.Config("server_login_retry = 1"))
		s.behind(t, front)
		restarts(t, s, front, false)
		restarts(t, s, s.on, false)
	})
}

func restarts(t *testing.T, s *store, what *testserver.Server, crowded bool) {
	t.Helper()
	a, b := s.backend(t), s.backend(t)
	holder := hold(t, a, claim("k"))
	w := wait(t, b, claim("k"))
	waits := steps.Await(t, b, w)
	held, stop := new(atomic.Int64), func() {}
	if crowded {
		held, stop = fourWorkers(t, a, b)
		until(t, "others come and go", func() bool { return held.Load() > 4 })
	}
	must(t, what.Kill())
	// A pooler has those wait who are connected to it, for two minutes.
	brief := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	until(t, "the sessions of a server that was killed have noticed", func() bool {
		return second(a.Line(brief(), "k")) != nil && second(b.Line(brief(), "k")) != nil
	})
	for name, err := range map[string]error{
		"Enter": second(a.Enter(brief(), claim("k"))),
		"Renew": renew(a, brief(), holder),
		"Leave": a.Leave(brief(), driver.Ticket{Claim: claim("k")}, driver.Exit{Tombstone: true}),
		"Line":  second(a.Line(brief(), "k")),
	} {
		unsure(t, name+" without a server", err)
	}
	must(t, what.Restart())
	steps.PersistRenew(t, a, holder) // a pooler refuses for a moment more
	steps.Persist(t, "a try that is told who holds the lock", func(ctx context.Context) error {
		err := second(b.Enter(ctx, noWait(claim("k"))))
		if errors.As(err, new(*driver.BusyError)) {
			return nil
		}
		return cmp.Or(err, driver.Permanent(errors.New("it is granted")))
	})
	before := held.Load()
	if crowded {
		until(t, "others come and go again", func() bool { return held.Load() > before+4 })
	}
	stop()
	leave(t, a, holder)
	got := <-waits
	if !got.Granted || got.Token != w.Token {
		t.Errorf("after the restart the waiter with token %d has %d, granted %v", w.Token, got.Token, got.Granted)
	}
	leave(t, b, got)
	later := hold(t, a, claim("k"))
	steps.Rises(t, got.Token, later.Token)
	leave(t, a, later)
	empty(t, a)
}

// TestServerIsKilledAfterAGrant kills the server as soon as a Leave, which grants the lock
// to somebody else, or an Enter was answered: both are on the disk by then. A Leave that
// grants nobody anything need not be, but the lock is free when its lease has ended.
func TestServerIsKilledAfterAGrant(t *testing.T) {
	eachServer(t, []kind{postgres}, func(t *testing.T, s *store) {
		b := s.polling(t)
		crash := func() {
			t.Helper()
			must(t, s.on.Kill())
			must(t, s.on.Restart())
			until(t, "the server answers", func() bool { return second(b.Line(soon(t), "k")) == nil })
		}
		for range 3 {
			first := hold(t, b, claim("k"))
			next := wait(t, b, claim("k"))
			leave(t, b, first)
			crash()
			gone(t, "Leave of a claim that had left before the crash", b.Leave(soon(t), first, driver.Exit{}))
			leave(t, b, granted(t, b, next))
			held := hold(t, b, claim("k"))
			crash()
			well(t, "Renew of a lock that was granted before the crash", renew(b, soon(t), held))
			leave(t, b, held)
		}
		leave(t, b, hold(t, b, ttl(claim("k"), 500*time.Millisecond)))
		crash()
		until(t, "the lock that was given back is free", func() bool {
			again, err := b.Enter(soon(t), noWait(claim("k")))
			if err == nil {
				leave(t, b, again)
			}
			return err == nil
		})
		empty(t, b)
	})
}
