package fencelock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// callCtx is the context of one driver call. It ends with its caller's context, at its own
// time limit, and with the part of the Client's life that it belongs to. A detached call
// takes only values from its caller's context.
//
// The Done channel is made when a driver asks for it, and the time limits of all calls
// share one timer. So a call that is answered at once costs neither.
type callCtx struct {
	parent   context.Context
	life     *lifetime
	until    int64 // by the clock of life
	detached bool  // the end of parent does not end the call

	mu     sync.Mutex
	wall   time.Time     // until as wall-clock time; zero before the first Deadline
	done   chan struct{} // nil before the first Done
	err    error         // set when done is closed, and when the call has ended
	unhook func() bool   // from parent
	after  []*afterCall

	prev, next *callCtx // in life; guarded by its mutex
}

type afterCall struct{ f func() }

func (c *callCtx) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wall.IsZero() {
		c.wall = c.life.clock.wall(c.until)
	}
	if !c.detached {
		if d, ok := c.parent.Deadline(); ok && d.Before(c.wall) {
			return d, true
		}
	}
	return c.wall, true
}

func (c *callCtx) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done != nil {
		return c.done
	}
	c.done = make(chan struct{})
	if c.err == nil {
		c.err = c.reason()
	}
	if c.err == nil && !c.life.add(c) {
		c.err = context.Canceled
	}
	if c.err != nil {
		close(c.done)
		return c.done
	}
	if !c.detached && c.parent.Done() != nil {
		c.unhook = context.AfterFunc(c.parent, func() { c.cancel(c.parent.Err()) })
	}
	return c.done
}

// reason is why the call ends now, or nil. c.mu is held.
func (c *callCtx) reason() error {
	if !c.detached {
		if err := c.parent.Err(); err != nil {
			return err
		}
	}
	if err := c.life.Err(); err != nil {
		return err
	}
	if c.life.clock.now() >= c.until {
		return context.DeadlineExceeded
	}
	return nil
}

func (c *callCtx) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.done != nil {
		return c.err
	}
	return c.reason()
}

// Value returns the values of the caller's context. Package context does not take a child
// of this context for a child of the caller's, because the Done channels differ.
func (c *callCtx) Value(key any) any {
	if c.detached {
		return context.WithoutCancel(c.parent).Value(key)
	}
	return c.parent.Value(key)
}

// AfterFunc calls f on a goroutine of its own when the call has ended, unless stop is
// called before. Package context uses it for children of this context, so they need no
// goroutine that watches it.
func (c *callCtx) AfterFunc(f func()) (stop func() bool) {
	c.Done() // makes the call end by its timer and its parent
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	a := &afterCall{f}
	c.after = append(c.after, a)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.after, a)
		if i >= 0 {
			c.after = slices.Delete(c.after, i, i+1)
		}
		return i >= 0
	}
}

// end frees the call's resources. Its context is cancelled.
func (c *callCtx) end() { c.cancel(context.Canceled) }

func (c *callCtx) cancel(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	after := c.after
	c.after = nil
	if c.done == nil {
		c.mu.Unlock()
		return
	}
	close(c.done)
	if c.unhook != nil {
		c.unhook()
	}
	c.mu.Unlock()
	c.life.remove(c)
	for _, a := range after {
		go a.f()
	}
}
