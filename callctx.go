package fencelock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// callCtx is the context of one driver call: its caller's, cut at a time limit of
// its own and, unless detached, at the Client's end. A call that is answered at once
// starts no timer: what can be waited for is made when a driver asks for Done, and then
// too the time limits of all calls share one timer.
type callCtx struct {
	parent   context.Context
	life     *lifetime // of the Client, as far as it matters here
	clock    *clock
	until    int64 // by that clock
	detached bool  // the end of parent does not matter, it only lends its values

	mu     sync.Mutex
	wall   time.Time     // until, once somebody asked
	done   chan struct{} // nil until somebody asks
	err    error         // set when done is closed, and when the call is over
	unhook func() bool   // from parent
	after  []*afterCall

	prev, next *callCtx // in life; guarded by its mutex
}

type afterCall struct{ f func() }

func (c *callCtx) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wall.IsZero() {
		c.wall = c.clock.wall(c.until)
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
		c.unhook = context.AfterFunc(c.parent, c.orphan)
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
	if c.clock.now() >= c.until {
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

// Value finds what the caller's ctx carries. Contexts that are made from this one do
// not take themselves for children of the caller's: its Done is another.
func (c *callCtx) Value(key any) any {
	if c.detached {
		return context.WithoutCancel(c.parent).Value(key)
	}
	return c.parent.Value(key)
}

// AfterFunc has f called on a goroutine of its own when the call is over, unless stop
// is called before. Contexts that are made from this one use it, and so need no
// goroutine to watch it.
func (c *callCtx) AfterFunc(f func()) (stop func() bool) {
	c.Done() // or nothing would end it
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

func (c *callCtx) orphan() { c.cancel(c.parent.Err()) }

// end says that the call is over, and frees what waited for it.
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

// lifetime is a context that ends a part of the Client's life. It knows the calls that
// end with it, so that each of them costs nothing but a place in a list.
//
// Their time limits have one timer, which is left alone when a call is over: it rings for
// nobody at most once in the time that a call is given. One that is started for each call
// costs a system call each time, to wake a thread that waits for it.
type lifetime struct {
	context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	calls *callCtx
	timer *time.Timer // nil before the first
	rings int64       // when it does, by Go's clock, which sleeps with the machine; 0 if it does not
}

func (l *lifetime) start() { l.Context, l.cancel = context.WithCancel(context.Background()) }

func (l *lifetime) end() {
	l.cancel()
	for {
		l.mu.Lock()
		c := l.calls
		if c == nil && l.timer != nil {
			l.timer.Stop()
		}
		l.mu.Unlock()
		if c == nil {
			return
		}
		c.cancel(context.Canceled) // which takes it out of the list
		l.remove(c)                // if somebody else is about to
	}
}

// add takes in a call; false if all is over.
func (l *lifetime) add(c *callCtx) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Err() != nil {
		return false
	}
	c.next = l.calls
	if c.next != nil {
		c.next.prev = c
	}
	l.calls = c
	if l.rings == 0 || c.until-c.clock.asleep.Load() < l.rings {
		l.ringFor(c, 0)
	}
	return true
}

// ringFor sets the timer to when the time of c is over, and not before pause is over. l.mu
// is held.
func (l *lifetime) ringFor(c *callCtx, pause time.Duration) {
	d := max(time.Duration(c.until-c.clock.now()), pause, soonest)
	l.rings = c.until - c.clock.asleep.Load()
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.ring)
		return
	}
	l.timer.Reset(d)
}

// ring ends the calls whose time is over. It goes through all of them; where many end one
// after the other, as in an outage, that takes a fifth of a processor at most.
func (l *lifetime) ring() {
	l.mu.Lock()
	began := time.Now()
	var now int64
	if l.calls != nil {
		now = l.calls.clock.now()
	}
	var due []*callCtx
	var next *callCtx
	for c := l.calls; c != nil; c = c.next {
		switch {
		case now >= c.until:
			due = append(due, c)
		case next == nil || c.until < next.until:
			next = c
		}
	}
	l.rings = 0
	if next != nil {
		l.ringFor(next, 4*time.Since(began))
	}
	l.mu.Unlock()
	for _, c := range due {
		c.cancel(context.DeadlineExceeded)
	}
}

// remove takes out a call, once or more often.
func (l *lifetime) remove(c *callCtx) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.calls == c:
		l.calls = c.next
	case c.prev != nil:
		c.prev.next = c.next
	default:
		return
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}
