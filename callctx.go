package fencelock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// lifetime is a context that ends with one part of the Client's life. The driver calls of
// that part share its timer, so a call costs no timer of its own.
type lifetime struct {
	context.Context
	end   context.CancelFunc
	clock *clock

	mu      sync.Mutex
	waited  map[*callCtx]struct{} // calls that a driver may wait for
	timer   *time.Timer
	firesAt int64 // never if the timer is not set
}

func newLifetime(clock *clock) *lifetime {
	l := &lifetime{clock: clock, waited: map[*callCtx]struct{}{}, firesAt: never}
	l.Context, l.end = context.WithCancel(context.Background())
	context.AfterFunc(l, l.endOver)
	return l
}

// call returns the context of a driver call that begins now and may take d.
func (l *lifetime) call(ctx context.Context, now int64, d time.Duration) *callCtx {
	return &callCtx{caller: ctx, life: l, until: now + int64(d)}
}

// detachedCall is call for a request that the end of ctx must not stop.
func (l *lifetime) detachedCall(ctx context.Context, now int64, d time.Duration) *callCtx {
	return &callCtx{caller: ctx, detached: true, life: l, until: now + int64(d)}
}

// watch has c end when its time is over.
func (l *lifetime) watch(c *callCtx) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waited[c] = struct{}{}
	at := c.until
	if l.Err() != nil { // endOver may have run before
		at = l.clock.now()
	}
	l.fireByLocked(at)
}

func (l *lifetime) forget(c *callCtx) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waited, c)
}

// fireByLocked sets the timer, unless it fires before at anyway. A call that ends leaves the
// timer set, so it may fire for nothing once per call timeout.
func (l *lifetime) fireByLocked(at int64) {
	if at >= l.firesAt {
		return
	}
	l.firesAt = at
	d := max(time.Duration(at-l.clock.now()), shortestTimer)
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.endOver)
	} else {
		l.timer.Reset(d)
	}
}

// endOver ends the calls whose time is over, or all of them at the end of the lifetime.
func (l *lifetime) endOver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, next := l.clock.now(), never
	for c := range l.waited {
		if now >= c.until || l.Err() != nil {
			go func() { _ = c.Err() }() // c.mu comes before l.mu in the lock order
		} else {
			next = min(next, c.until)
		}
	}
	l.firesAt = never
	l.fireByLocked(next)
}

// callCtx is the context of one driver call. It ends with its caller's context, at its own
// time limit, and with the part of the Client's life that it belongs to.
//
// It does what context.WithDeadline, WithoutCancel and AfterFunc can do together. Built from
// these, it took 13 % of the processor time of cmd/bench's case keys, and that case lost a
// tenth of its pairs.
type callCtx struct {
	caller   context.Context
	detached bool // only the values of caller count
	life     *lifetime
	until    int64 // by the clock of life

	mu    sync.Mutex
	err   error         // why the call has ended; nil while it has not
	done  chan struct{} // nil until a driver asks
	stop  func() bool   // stops waiting for the end of caller; nil before that begins
	after []*func()     // what AfterFunc was given
}

func (c *callCtx) Deadline() (time.Time, bool) {
	d := c.life.clock.wall(c.until)
	if !c.detached {
		if of, ok := c.caller.Deadline(); ok && of.Before(d) {
			d = of
		}
	}
	return d, true
}

func (c *callCtx) Value(key any) any {
	if c.detached {
		return context.WithoutCancel(c.caller).Value(key)
	}
	return c.caller.Value(key)
}

func (c *callCtx) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
	case !c.detached && c.caller.Err() != nil:
		c.endLocked(c.caller.Err())
	case c.life.Err() != nil:
		c.endLocked(context.Canceled)
	case c.life.clock.now() >= c.until:
		c.endLocked(context.DeadlineExceeded)
	}
	return c.err
}

func (c *callCtx) Done() <-chan struct{} {
	_ = c.Err()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done != nil {
		return c.done
	}
	c.done = make(chan struct{})
	if c.err != nil {
		close(c.done)
		return c.done
	}
	c.life.watch(c)
	if !c.detached && c.caller.Done() != nil {
		c.stop = context.AfterFunc(c.caller, func() { _ = c.Err() })
	}
	return c.done
}

// AfterFunc calls f in a goroutine when the call ends. Package context asks for it when a
// context is derived from this one.
func (c *callCtx) AfterFunc(f func()) (stop func() bool) {
	c.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	c.after = append(c.after, &f)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.after, &f)
		if i >= 0 {
			c.after = slices.Delete(c.after, i, i+1)
		}
		return i >= 0
	}
}

// end frees the call's resources. Its context is cancelled.
func (c *callCtx) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.endLocked(context.Canceled)
	}
}

func (c *callCtx) endLocked(err error) {
	c.err = err
	if c.done == nil {
		return
	}
	close(c.done)
	c.life.forget(c)
	if c.stop != nil {
		c.stop()
	}
	for _, f := range c.after {
		go (*f)()
	}
	c.after = nil
}
