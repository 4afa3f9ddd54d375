package fencelock

import (
	"context"
	"sync"
	"time"
)

// lifetime is a context that ends with one part of the Client's life.
type lifetime struct {
	context.Context
	end   context.CancelFunc
	clock *clock
}

func newLifetime(clock *clock) lifetime {
	ctx, end := context.WithCancel(context.Background())
	return lifetime{ctx, end, clock}
}

// call returns the context of a driver call that begins now and may take d.
func (l *lifetime) call(ctx context.Context, now int64, d time.Duration) *callCtx {
	return &callCtx{caller: ctx, life: l, until: now + int64(d)}
}

// detachedCall is call for a request that the end of ctx must not stop.
func (l *lifetime) detachedCall(ctx context.Context, now int64, d time.Duration) *callCtx {
	return &callCtx{caller: ctx, detached: true, life: l, until: now + int64(d)}
}

// callCtx is the context of one driver call. It ends with its caller's context, at its own
// time limit, and with the part of the Client's life that it belongs to.
//
// The context that can be waited for is built when a driver asks for it. Stores that answer
// at once do not ask, so BenchmarkFreeLock saves its timer and its allocations.
type callCtx struct {
	caller   context.Context
	detached bool // only the values of caller count
	life     *lifetime
	until    int64 // by the clock of life

	mu     sync.Mutex
	built  context.Context // nil before the first Done, Deadline or Value
	cancel func()          // of built
	ended  bool
}

func (c *callCtx) Deadline() (time.Time, bool) { return c.build().Deadline() }
func (c *callCtx) Done() <-chan struct{}       { return c.build().Done() }
func (c *callCtx) Value(key any) any           { return c.build().Value(key) }

func (c *callCtx) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := c.ended || c.life.Err() != nil || !c.detached && c.caller.Err() != nil || c.life.clock.now() >= c.until
	if c.built == nil && !over {
		return nil
	}
	return c.buildLocked().Err()
}

// end frees the call's resources. Its context is cancelled.
func (c *callCtx) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.built != nil {
		c.cancel()
	}
}

func (c *callCtx) build() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buildLocked()
}

func (c *callCtx) buildLocked() context.Context {
	if c.built != nil {
		return c.built
	}
	parent := c.caller
	if c.detached {
		parent = context.WithoutCancel(parent)
	}
	built, cancel := context.WithDeadline(parent, c.life.clock.wall(c.until))
	if c.ended || c.life.Err() != nil {
		cancel()
	}
	stop := context.AfterFunc(c.life, cancel)
	c.built, c.cancel = built, func() {
		stop()
		cancel()
	}
	return built
}
