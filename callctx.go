package fencelock

import (
	"context"
	"sync"
	"time"
)

// callCtx is the context of one driver call: its caller's, cut at a time limit of
// its own and, unless detached, at the Client's end. It makes a timer only when a
// driver asks for Done, so a call that is answered at once pays for none.
type callCtx struct {
	parent   context.Context
	stop     context.Context // ends with the Client
	clock    *clock
	until    int64 // by that clock
	detached bool  // the end of parent does not matter, it only lends its values

	mu     sync.Mutex
	wall   time.Time // until, once somebody asked
	inner  context.Context
	cancel context.CancelFunc
	unhook func() bool
}

func (c *callCtx) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.limit()
	if !c.detached {
		if d, ok := c.parent.Deadline(); ok && d.Before(own) {
			return d, true
		}
	}
	return own, true
}

// limit is until as others know it. c.mu is held.
func (c *callCtx) limit() time.Time {
	if c.wall.IsZero() {
		c.wall = c.clock.wall(c.until)
	}
	return c.wall
}

func (c *callCtx) build() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		parent := c.parent
		if c.detached {
			parent = context.WithoutCancel(parent)
		}
		c.inner, c.cancel = context.WithDeadline(parent, c.limit())
		c.unhook = context.AfterFunc(c.stop, c.cancel)
	}
	return c.inner
}

func (c *callCtx) built() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inner
}

func (c *callCtx) Done() <-chan struct{} { return c.build().Done() }

func (c *callCtx) Err() error {
	if in := c.built(); in != nil {
		return in.Err()
	}
	if !c.detached {
		if err := c.parent.Err(); err != nil {
			return err
		}
	}
	if err := c.stop.Err(); err != nil {
		return err
	}
	if c.clock.now() >= c.until {
		return context.DeadlineExceeded
	}
	return nil
}

// Value goes through the inner context once there is one, so that contexts made
// from this one attach to it and need no goroutine to watch it.
func (c *callCtx) Value(key any) any {
	if in := c.built(); in != nil {
		return in.Value(key)
	}
	return c.parent.Value(key)
}

// end frees the timer, if there is one.
func (c *callCtx) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		c.unhook()
		c.cancel()
	}
}
