package sqlite_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// ending ends the context of each call at a random moment, while a statement runs or between
// two of them. The driver answers the end of a context with sqlite3_interrupt.
type ending struct {
	driver.Backend
	n *atomic.Int64 // calls that were ended
}

func (e ending) soon(ctx context.Context) (context.Context, context.CancelFunc) {
	if rand.N(4) == 0 {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, rand.N(600*time.Microsecond))
	return ctx, func() {
		if ctx.Err() != nil {
			e.n.Add(1)
		}
		cancel()
	}
}

func (e ending) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	ctx, cancel := e.soon(ctx)
	defer cancel()
	return e.Backend.Enter(ctx, c)
}

func (e ending) Renew(ctx context.Context, ts []driver.Ticket) []error {
	ctx, cancel := e.soon(ctx)
	defer cancel()
	return e.Backend.Renew(ctx, ts)
}

func (e ending) Leave(ctx context.Context, t driver.Ticket, x driver.Exit) error {
	ctx, cancel := e.soon(ctx)
	defer cancel()
	return e.Backend.Leave(ctx, t, x)
}

// TestStatementsInterruptedAtAnyMoment has six pools lock three keys, while statements are
// interrupted. No two clients may hold a key, and tokens rise. A pool with a limit and a
// busy timeout are the two ways in which a statement hears its context.
func TestStatementsInterruptedAtAnyMoment(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"WAL": "file:%s?_pragma=journal_mode(WAL)", "BarePath": "%s", "BusyTimeout": "file:%s?_pragma=busy_timeout(2)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interrupt(t, fmt.Sprintf(dsn, newFile(t)))
		})
	}
}

func interrupt(t *testing.T, dsn string) {
	var keys [3]struct {
		sync.Mutex
		holder *fencelock.Lease
		token  fence.Token
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	empty(t, backend(t, openDSN(t, dsn)))
	var ended, held atomic.Int64
	var wg sync.WaitGroup
	for range 6 {
		db := openDSN(t, dsn)
		db.SetMaxOpenConns(2)
		c := fencelock.New(ending{backend(t, db), &ended}, &fencelock.Options{TTL: 5 * time.Second, HandOff: 4})
		t.Cleanup(func() { c.Close() })
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					i := rand.N(len(keys))
					l, err := c.Lock(ctx, fmt.Sprint("key", i))
					if err != nil {
						continue
					}
					k := &keys[i]
					k.Lock()
					if k.holder != nil && k.holder.Err() == nil && l.Err() == nil {
						t.Errorf("two hold key%d: tokens %d and %d", i, k.holder.Token(), l.Token())
					}
					if l.Token() <= k.token && l.Err() == nil {
						t.Errorf("a token of key%d fell from %d to %d", i, k.token, l.Token())
					}
					k.token, k.holder = max(k.token, l.Token()), l
					k.Unlock()
					timer := time.NewTimer(rand.N(4 * time.Millisecond))
					<-timer.C
					k.Lock()
					if k.holder == l {
						k.holder = nil
					}
					k.Unlock()
					l.Release(ctx)
					held.Add(1)
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d holds, %d calls ended", held.Load(), ended.Load())
	if held.Load() < 10 || ended.Load() < 100 {
		t.Errorf("%d holds and %d ended calls prove nothing", held.Load(), ended.Load())
	}
}
