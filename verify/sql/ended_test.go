package sql_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/verify/traffic"
)

// ending is a way in which a server ends statements at random moments.
type ending struct {
	kind
	gap  time.Duration // between those that an administrator ends
	hard bool          // next to nobody gets through
}

var endings = []ending{
	{kind: postgres.with("CancelWithoutPause"), hard: true},
	{kind: postgres.with("CancelEachMillisecond"), gap: time.Millisecond},
	{kind: rarely(postgres)[0].with("StatementTimeout1Millisecond", "statement_timeout=1"), hard: true},
	{kind: rarely(postgres)[0].with("StatementTimeout3Milliseconds", "statement_timeout=3"), hard: true},
	{kind: mariaDB.with("KillQueryWithoutPause"), hard: true},
	{kind: mariaDB.with("KillQueryEachMillisecond"), gap: time.Millisecond},
	{kind: rarely(mariaDB)[0].with("KillQueryEach10Milliseconds"), gap: 10 * time.Millisecond},
	{kind: rarely(mariaDB)[0].with("MaxStatementTime", "max_statement_time=0.0004"), hard: true},
	{kind: rarely(mariaDB)[0].with("MaxStatementTime3Milliseconds", "max_statement_time=0.003")},
}

// eachEnding runs a test with each, and says whether it is hard. begin begins to end statements, until ctx does.
func eachEnding(t *testing.T, hard bool,
	f func(t *testing.T, s *store, hard bool, begin func(context.Context, *sync.WaitGroup))) {
	t.Helper()
	t.Parallel()
	for _, e := range endings {
		if e.hard && !hard || e.rare && !verifying {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := e.store(t)
			if len(e.params) > 0 && s.dialect == sqllock.MySQL && onMySQL(t, s) {
				return // its max_execution_time ends nothing but a SELECT of the client's
			}
			f(t, s, e.hard, func(ctx context.Context, wg *sync.WaitGroup) {
				if len(e.params) == 0 {
					wg.Go(func() { s.endStatements(ctx, t, e.gap) })
				}
			})
		})
	}
}

// endStatements ends the statements of all others in the database, again and again.
func (s *store) endStatements(ctx context.Context, t *testing.T, gap time.Duration) {
	all := "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
	if s.dialect == sqllock.Postgres {
		all = `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()`
	}
	for ctx.Err() == nil {
		for _, id := range append(column[string](t, s.db, all), "") {
			if s.dialect == sqllock.MySQL && id != "" {
				_, _ = s.db.Exec("KILL QUERY " + id) // it may have gone
			}
			select {
			case <-time.After(gap):
			case <-ctx.Done():
			}
		}
	}
}

// TestTryThatIsEndedTakesNoHeldLock tries a lock that is held, while the server ends the
// statements of the try. An Enter whose read of the line was ended must not find it empty.
func TestTryThatIsEndedTakesNoHeldLock(t *testing.T) {
	eachEnding(t, true, func(t *testing.T, s *store, hard bool, begin func(context.Context, *sync.WaitGroup)) {
		holder := s.backendOn(t, s.openDSN(t, s.direct))
		ticket := hold(t, holder, ttl(claim("k"), time.Hour))
		busy(t, holder, "k")
		goes := goes(t)
		ctx := goes.ctx
		var wg sync.WaitGroup
		begin(ctx, &wg)
		var tries, ended atomic.Int64
		// One who pauses may miss each statement, and PostgreSQL may be quick enough for anybody. On one processor
		// next to each statement has ended when another one is sent.
		seen := func() bool {
			n := tries.Load()
			return n > ended.Load() && (ended.Load() > 0 || !hard || s.dialect == sqllock.Postgres || n > 1000)
		}
		least := time.Now().Add(spell)
		for range 3 {
			b := s.polling(t)
			wg.Go(func() {
				defer goes.end() // what one has seen is enough for all
				for ctx.Err() == nil && tries.Load() < 100_000 && (time.Now().Before(least) || !seen()) {
					goes.on()
					got, err := b.Enter(soon(t), noWait(claim("k"))) // to its end: nothing of it goes on behind
					tries.Add(1)
					if !errors.As(err, new(*driver.BusyError)) {
						ended.Add(1)
					}
					if err == nil {
						t.Errorf("a try of the held lock was granted: %+v", got)
						return
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d tries, %d were ended", tries.Load(), ended.Load())
		if !seen() {
			t.Errorf("%d of %d tries were ended; want some of a thousand, and not all", ended.Load(), tries.Load())
		}
		renewed(t, holder, ticket)
		leave(t, holder, ticket)
		empty(t, holder)
	})
}

// believed is who believes to hold a key.
type believed struct {
	mu           sync.Mutex
	holder, last *fencelock.Lease
}

func (k *believed) take(t *testing.T, l *fencelock.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holder != nil && k.holder.Err() == nil && l.Err() == nil {
		t.Errorf("two hold %s: tokens %d and %d", l.Key(), k.holder.Token(), l.Token())
	}
	if k.last != nil && l.Token() <= k.last.Token() && l.Err() == nil {
		t.Errorf("the token of %s fell from %d to %d", l.Key(), k.last.Token(), l.Token())
	}
	k.holder, k.last = l, l
}

func (k *believed) give(l *fencelock.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holder == l {
		k.holder = nil
	}
}

// contend has six clients take three locks from each other for a spell, and until enough
// says that there was progress: a busy machine may need longer. No two clients hold a lock, and
// tokens rise. begin starts what goes on meanwhile, and ends with its context, which that of
// backend is too.
func contend(t *testing.T, lease time.Duration, backend func(context.Context) driver.Backend,
	begin func(context.Context, *sync.WaitGroup), enough func(held int64) bool) {
	t.Helper()
	goes := goes(t)
	ctx := goes.ctx
	least := time.Now().Add(spell)
	var held atomic.Int64
	var wg sync.WaitGroup
	keys := make([]believed, 3)
	for range 6 {
		c := testclient.New(t, backend(ctx), &fencelock.Options{TTL: lease, HandOff: 4})
		t.Cleanup(func() { c.Close() })
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					i := rand.N(len(keys))
					l, err := c.Lock(ctx, fmt.Sprint("key", i))
					if err != nil {
						continue // every try may be ended
					}
					keys[i].take(t, l)
					pause(rand.N(6 * time.Millisecond))
					keys[i].give(l)
					_ = l.Release(ctx)
					goes.on()
					if n := held.Add(1); n > 100_000 || enough(n) && time.Now().After(least) {
						goes.end()
					}
				}
			})
		}
	}
	begin(ctx, &wg)
	wg.Wait()
	t.Logf("%d holds", held.Load())
	if !enough(held.Load()) {
		t.Errorf("%d holds; want progress", held.Load())
	}
}

// TestStatementsAreEndedUnderLoad has clients take locks while the server ends their
// statements.
func TestStatementsAreEndedUnderLoad(t *testing.T) {
	eachEnding(t, false, func(t *testing.T, s *store, _ bool, begin func(context.Context, *sync.WaitGroup)) {
		empty(t, s.backendOn(t, s.openDSN(t, s.direct)))
		// The server may have ended the Leaves that Close sent; such claims are gone when their
		// leases are over.
		t.Cleanup(func() {
			until(t, "the leases that nobody could give back are over", func() bool {
				n := 0
				b := sqllock.New(s.db, s.dialect, nil)
				defer b.Close()
				for range b.Lines(soon(t), "") {
					n++
				}
				return n == 0
			})
		})
		contend(t, 3*time.Second, func(context.Context) driver.Backend { return s.polling(t) }, begin,
			func(held int64) bool { return held >= 20 })
	})
}

// TestStatementsInterruptedAtAnyMoment has clients take locks while their statements are
// interrupted. A pool with a limit and a busy timeout are the two ways in which a statement
// hears its context. Nothing is interrupted when the clients close, so they give back all that
// any call has left behind.
func TestStatementsInterruptedAtAnyMoment(t *testing.T) {
	busyTimeout := sqlite.with("BusyTimeout", "file:%s?_pragma=busy_timeout(2)")
	each(t, append(rarely(barePath), sqlite, busyTimeout), func(t *testing.T, s *store) {
		empty(t, s.polling(t))
		var ended atomic.Int64
		contend(t, 5*time.Second, func(ctx context.Context) driver.Backend {
			db := s.open(t)
			db.SetMaxOpenConns(2)
			return traffic.Interrupt(ctx, s.backendOn(t, db), 4./3, 600*time.Microsecond, &ended)
		}, func(context.Context, *sync.WaitGroup) {},
			func(held int64) bool { return held >= 10 && ended.Load() >= 100 })
	})
}
