package fencelock

import (
	"context"
	"sync"
	"time"
)

// lifetime is a context that ends one part of the Client's life. It lists the driver calls
// that end with it, so that a call needs no goroutine to watch it.
//
// One timer serves the time limits of all calls. It is not reset when a call is answered,
// so it may fire spuriously, at most once per time limit. Starting a timer for each call
// costs a system call each time.
type lifetime struct {
	context.Context
	cancel context.CancelFunc
	clock  *clock

	mu      sync.Mutex
	calls   *callCtx    // a linked list
	timer   *time.Timer // nil before the first call that is waited for
	firesAt int64       // by Go's monotonic clock, which stops while the machine sleeps; 0 if not set
}

func (l *lifetime) start(clock *clock) {
	l.clock = clock
	l.Context, l.cancel = context.WithCancel(context.Background())
}

// call returns the context of a driver call that begins now and may take d.
func (l *lifetime) call(ctx context.Context, now int64, d time.Duration) *callCtx {
	return &callCtx{parent: ctx, life: l, until: now + int64(d)}
}

// detachedCall is call for a request that the end of ctx must not stop.
func (l *lifetime) detachedCall(ctx context.Context, now int64, d time.Duration) *callCtx {
	return &callCtx{parent: ctx, detached: true, life: l, until: now + int64(d)}
}

// end cancels the context and every call.
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
		c.cancel(context.Canceled) // removes c, unless another goroutine has cancelled it
		l.remove(c)
	}
}

// add lists a call. It reports false if the lifetime has ended.
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
	if l.firesAt == 0 || c.until-l.clock.asleep.Load() < l.firesAt {
		l.setTimerLocked(c, 0)
	}
	return true
}

// setTimerLocked sets the timer to the time limit of c, and at least pause from now.
func (l *lifetime) setTimerLocked(c *callCtx, pause time.Duration) {
	d := max(time.Duration(c.until-l.clock.now()), pause, shortestTimer)
	l.firesAt = c.until - l.clock.asleep.Load()
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.fire)
		return
	}
	l.timer.Reset(d)
}

// fire ends the calls whose time limit has passed. It looks at every call. In an outage
// many calls end one after another, and the pause between two such scans keeps their cost
// below a fifth of one processor.
func (l *lifetime) fire() {
	l.mu.Lock()
	began := time.Now()
	now := l.clock.now()
	var expired []*callCtx
	var first *callCtx // of those that stay
	for c := l.calls; c != nil; c = c.next {
		switch {
		case now >= c.until:
			expired = append(expired, c)
		case first == nil || c.until < first.until:
			first = c
		}
	}
	l.firesAt = 0
	if first != nil {
		l.setTimerLocked(first, 4*time.Since(began))
	}
	l.mu.Unlock()
	for _, c := range expired {
		c.cancel(context.DeadlineExceeded)
	}
}

// remove takes a call off the list. Removing it again has no effect.
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
