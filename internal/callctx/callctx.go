// Package callctx makes the contexts of requests to a store.
package callctx

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/clock"
)

// Lifetime is a context that ends with one part of a client's life. The requests of that part
// end with it.
type Lifetime struct {
	context.Context
	End   context.CancelFunc
	clock *clock.Clock
}

// New returns a Lifetime that has not ended.
func New(c *clock.Clock) *Lifetime {
	l := &Lifetime{clock: c}
	l.Context, l.End = context.WithCancel(context.Background())
	return l
}

// Call returns the context of a request that begins now and may take d.
func (l *Lifetime) Call(ctx context.Context, now int64, d time.Duration) *Call {
	return &Call{caller: ctx, life: l, until: now + int64(d)}
}

// DetachedCall is Call for a request that the end of ctx must not stop.
func (l *Lifetime) DetachedCall(ctx context.Context, now int64, d time.Duration) *Call {
	return &Call{caller: ctx, detached: true, life: l, until: now + int64(d)}
}

// Call is the context of one request. It ends with its caller's context, at its own time limit,
// and with its Lifetime.
//
// A store that answers at once asks for neither Done nor Value, so the context that can be waited
// for is built when one of them is called for the first time. Built at once, it doubles the
// processor time of BenchmarkFreeLock.
type Call struct {
	caller   context.Context
	detached bool // only the values of caller count
	life     *Lifetime
	until    int64 // by the clock of life

	mu     sync.Mutex
	err    error // why the request has ended, as far as Err has seen
	built  context.Context
	cancel context.CancelFunc // of built
	forget func() bool        // stops waiting for the end of life
}

// Deadline returns when the request ends, by the wall clock.
func (c *Call) Deadline() (time.Time, bool) {
	d := c.life.clock.Wall(c.until)
	if !c.detached {
		if of, ok := c.caller.Deadline(); ok && of.Before(d) {
			d = of
		}
	}
	return d, true
}

// Value returns a value of the caller's context.
func (c *Call) Value(key any) any { return c.build().Value(key) }

// Done returns a channel that is closed when the request must end.
func (c *Call) Done() <-chan struct{} { return c.build().Done() }

// Err reads the clock itself, so it is right before a timer has fired.
func (c *Call) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
	case !c.detached && c.caller.Err() != nil:
		c.end(c.caller.Err())
	case c.life.Err() != nil:
		c.end(context.Canceled)
	case c.life.clock.Now() >= c.until:
		c.end(context.DeadlineExceeded)
	}
	return c.err
}

// build returns the context that can be waited for.
func (c *Call) build() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.built != nil {
		return c.built
	}
	parent := c.caller
	if c.detached {
		parent = context.WithoutCancel(parent)
	}
	c.built, c.cancel = context.WithTimeout(parent, time.Duration(c.until-c.life.clock.Now()))
	c.forget = context.AfterFunc(c.life, c.cancel)
	if c.err != nil || c.life.Err() != nil {
		c.cancel()
	}
	return c.built
}

// End frees what the context holds. The context is cancelled.
func (c *Call) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.end(context.Canceled)
	}
}

// end ends the context because of err. The mutex is held.
func (c *Call) end(err error) {
	c.err = err
	if c.built != nil {
		c.cancel()
		c.forget()
	}
}
