package bubble_test

import (
	"context"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// cable is the way from one process to the store. In an outage it carries nothing:
// requests and answers wait for its end, and go on one after the other, in the order in
// which they came, so that a run can be repeated.
type cable struct {
	*memlock.Store
	outages [][2]time.Time // from, to

	mu    sync.Mutex
	stuck int // so many have waited so far
	order *rand.Rand
}

// yield lets others go first, as often as is drawn: in the sandbox goroutines take turns,
// and have no other reason to come in another order than they began.
func (c *cable) yield() {
	c.mu.Lock()
	n := c.order.IntN(4)
	c.mu.Unlock()
	for range n {
		runtime.Gosched()
	}
}

// Close leaves the store to the other processes.
func (c *cable) Close() error { return nil }

// delay is how long one who comes now has to wait, and whether it goes on even if its
// sender gives it up.
func (c *cable) delay() (d time.Duration, goesOn bool) {
	now := time.Now()
	for _, o := range c.outages {
		if !now.Before(o[0]) && now.Before(o[1]) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.stuck++
			return o[1].Sub(now) + time.Duration(c.stuck)*time.Microsecond, c.stuck%2 == 0
		}
	}
	return 0, false
}

// carry carries a request to the store, and its answer back.
func carry[A any](ctx context.Context, c *cable, call func(ctx context.Context) A, failed func(error) A) A {
	c.yield()
	defer c.yield()
	if d, goesOn := c.delay(); d > 0 {
		if err := rest(ctx, d); err != nil {
			if goesOn {
				at := time.Now().Add(d)
				if end, ok := ctx.Deadline(); ok {
					at = end.Add(d)
				}
				go func() {
					time.Sleep(time.Until(at))
					call(context.Background())
				}()
			}
			return failed(err)
		}
	}
	a := call(ctx)
	d, _ := c.delay()
	if err := rest(ctx, d); err != nil {
		return failed(err)
	}
	return a
}

func rest(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil // as a call that is answered at once
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// carryBoth is carry for a call with a result and an error.
func carryBoth[A any](ctx context.Context, c *cable, call func(ctx context.Context) (A, error)) (A, error) {
	type both struct {
		result A
		err    error
	}
	got := carry(ctx, c, func(ctx context.Context) both { r, err := call(ctx); return both{r, err} },
		func(err error) both { return both{err: err} })
	return got.result, got.err
}

func (c *cable) Enter(ctx context.Context, d driver.Claim) (driver.Ticket, error) {
	return carryBoth(ctx, c, func(ctx context.Context) (driver.Ticket, error) { return c.Store.Enter(ctx, d) })
}

func (c *cable) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	return carryBoth(ctx, c, func(ctx context.Context) (driver.Ticket, error) {
		if _, ok := ctx.Deadline(); !ok {
			return driver.Ticket{}, nil // nobody waits any more
		}
		return c.Store.Await(ctx, t)
	})
}

func (c *cable) Renew(ctx context.Context, ts []driver.Ticket) []error {
	return carry(ctx, c, func(ctx context.Context) []error { return c.Store.Renew(ctx, ts) }, func(err error) []error {
		errs := make([]error, len(ts))
		for i := range errs {
			errs[i] = err
		}
		return errs
	})
}

func (c *cable) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	return carryBoth(ctx, c, func(ctx context.Context) (bool, error) { return c.Store.Reserve(ctx, t, span) })
}

func itself(err error) error { return err }

func (c *cable) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	return carry(ctx, c, func(ctx context.Context) error { return c.Store.Leave(ctx, t, e) }, itself)
}

func (c *cable) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	return carry(ctx, c, func(ctx context.Context) error { return c.Store.Break(ctx, key, token, how) }, itself)
}

func (c *cable) Line(ctx context.Context, key string) (driver.Line, error) {
	return carryBoth(ctx, c, func(ctx context.Context) (driver.Line, error) { return c.Store.Line(ctx, key) })
}

func (c *cable) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return c.Store.Lines(ctx, prefix)
}
