package fencelock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/callctx"
	"github.com/fencelock/fencelock/internal/clock"
)

// closeBudget bounds how long Close waits for the store, and then for OnEvent.
const closeBudget = 2 * time.Second

type phase int32

const (
	phaseOpen     phase = iota
	phaseDraining       // Shutdown: no new claims; what is held is renewed
	phaseClosing        // Close: every lease has ended; claims leave the store
	phaseClosed         // Close has ended: nothing is sent any more
)

// lifecycle holds what Shutdown and Close end and wait for.
type lifecycle struct {
	acquiring *callctx.Lifetime // ends when no call may wait any longer
	renewing  *callctx.Lifetime // ends when nothing is renewed any longer
	leaving   *callctx.Lifetime // ends when Close no longer waits for the store

	grants atomic.Int64 // grants that have not ended, or whose claim is about to be given back
	work   atomic.Int64 // acquisitions, renewals and Leaves that are under way or due

	now     atomic.Int32 // the phase
	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever a counter falls after phaseOpen
	closed  chan struct{} // closed when Close has ended
}

func (l *lifecycle) start(c *clock.Clock) {
	l.acquiring, l.renewing, l.leaving = callctx.New(c), callctx.New(c), callctx.New(c)
	l.changed, l.closed = make(chan struct{}), make(chan struct{})
}

func (l *lifecycle) open() bool { return phase(l.now.Load()) == phaseOpen }

// pause waits for d, and no longer than until ctx ends or no call may wait.
func (l *lifecycle) pause(ctx context.Context, d time.Duration) {
	t := clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-l.acquiring.Done():
	}
}

// advance begins phase to, unless that phase or a later one has begun. It returns the phase
// before.
func (l *lifecycle) advance(to phase) (before phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = phase(l.now.Load())
	l.now.Store(int32(max(before, to)))
	return before
}

// beginAcquisition counts one call that asks for a lease. It counts before it looks at the
// phase: Close sets the phase before it looks at the count, so one of the two sees the
// other.
func (l *lifecycle) beginAcquisition() error {
	l.beginWork()
	if !l.open() {
		l.endWork()
		return ErrClosed
	}
	return nil
}

func (l *lifecycle) beginWork() { l.work.Add(1) }

func (l *lifecycle) endWork() {
	l.work.Add(-1)
	l.notify()
}

func (l *lifecycle) endGrant() {
	l.grants.Add(-1)
	l.notify()
}

func (l *lifecycle) notify() {
	if l.open() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// awaitZero waits until n, one of the counters, is zero, and at most until stop.
func awaitZero[T any](l *lifecycle, n *atomic.Int64, stop <-chan T) bool {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if n.Load() == 0 {
			return true
		}
		select {
		case <-changed:
		case <-stop:
			return false
		}
	}
}

// Shutdown closes the Client without ending a lease early. From now on calls return
// ErrClosed, also those that wait in line. Shutdown waits until everything held has been
// released, or until ctx ends, and then closes. What is held is renewed meanwhile, and may
// be shared by Reentrant. If ctx ended first, the remaining leases end with ErrClosed, and
// the error is that of ctx and its cause.
func (c *Client) Shutdown(ctx context.Context) error {
	c.life.advance(phaseDraining)
	c.endWaiting()
	if !awaitZero(&c.life, &c.life.grants, ctx.Done()) {
		return errors.Join(errContext(ctx), c.Close())
	}
	return c.Close()
}

func (c *Client) endWaiting() {
	c.life.acquiring.End()
	c.queues.dismissAll()
}

// Close ends every lease and every waiting call with ErrClosed, and then releases the locks
// in the store. It waits up to two seconds for the store, where leases that are left run
// out, and up to two seconds for OnEvent. It may be called twice; the second call waits for
// the first.
func (c *Client) Close() error {
	if c.life.advance(phaseClosing) >= phaseClosing {
		<-c.life.closed
		return nil
	}
	c.endWaiting()
	c.life.renewing.End()
	// A grant is made only while the phase is open, under its claim's mutex, and its claim was
	// scheduled before. So this loop meets every grant.
	for _, cl := range c.schedule.Find(func(*claim) bool { return true }) {
		cl.close()
	}
	late := time.NewTimer(closeBudget)
	defer late.Stop()
	if awaitZero(&c.life, &c.life.grants, late.C) { // a Release ends its grant after its work has begun
		awaitZero(&c.life, &c.life.work, late.C)
	}
	c.life.advance(phaseClosed)
	c.life.leaving.End()
	c.schedule.Stop()

	if c.stopAlarms != nil {
		c.stopAlarms()
	}
	c.events.send(EventClosed, Event{})
	c.events.Drain(closeBudget)
	err := c.backend.Close()
	close(c.life.closed)
	return err
}
