package fencelock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

func TestFailedRenewalIsARiskNotALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		var down atomic.Bool
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			if down.Load() {
				return all(ts, errCut)
			}
			return do()
		}
		var risks, losses atomic.Int32
		c := client(t, b, &fencelock.Options{TTL: ttl, OnEvent: func(e fencelock.Event) {
			switch e.Type {
			case fencelock.EventAtRisk:
				risks.Add(1)
				if e.Err == nil || e.Left <= 0 {
					t.Errorf("at risk, with error %v and %v left", e.Err, e.Left)
				}
			case fencelock.EventLost:
				losses.Add(1)
			}
		}})
		l := mustLock(t, c, "k")
		down.Store(true)
		after(9 * time.Second)
		ok(t, l.Err())
		down.Store(false)
		after(ttl)
		ok(t, l.Err())
		if risks.Load() != 1 || losses.Load() != 0 {
			t.Errorf("%d risks and %d losses were reported; want 1 and 0", risks.Load(), losses.Load())
		}
		mustRelease(t, l)
	})
}

func TestGoneIsALossAtOnce(t *testing.T) {
	// A flush of the store is a loss, seen with the next renewal, and no invitation to
	// enter again behind the holder's back.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		begin := time.Now()
		l := mustLock(t, c, "k")
		s.Flush()
		<-l.Context().Done()
		tookAtMost(t, begin, ttl/3+time.Second)
		steps.Is(t, "the cause", l.Err(), fencelock.ErrBroken)
		steps.Same(t, "Enters; the claim was entered again", len(b.entered()), 1)
		steps.Is(t, "Release of a lost lease", l.Release(context.Background()), fencelock.ErrLost)
	})
}

func TestLostLeaseNeverComesBack(t *testing.T) {
	// A renewal is answered well just after the deadline. The holder may have looked
	// and gone; the answer must not take that back.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			errs := do()
			after(ttl) // ignores its time limit
			return errs
		}
		var lost atomic.Int32
		c := client(t, b, &fencelock.Options{TTL: ttl, OnEvent: testclient.On(fencelock.EventLost, func(fencelock.Event) { lost.Add(1) })})
		l := mustLock(t, c, "k")
		<-l.Context().Done()
		err := l.Err()
		after(5 * ttl)
		if again := l.Err(); again == nil || again != err {
			t.Errorf("first %v, later %v", err, again)
		}
		if lost.Load() != 1 {
			t.Errorf("Lost was called %d times", lost.Load())
		}
	})
}

//verify:fault Processes | SIGSTOP between request and answer
func TestErrReadsTheClockBeforeAnyTimer(t *testing.T) {
	// Err is asked in the very moment of the deadline, from a timer that was set
	// before the Client's own.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			<-ctx.Done()
			return all(ts, ctx.Err())
		}
		l := mustLock(t, c, "k")
		at := l.Deadline()
		time.Sleep(time.Until(at))
		steps.Is(t, "Err at the deadline", l.Err(), fencelock.ErrExpired)
		after(ttl)
	})
}

func TestExpiredLeaseIsLeftToRunOutAndThenLeft(t *testing.T) {
	// Where claims share a lease, the others keep a lost one in line until a Leave is sent. It is not
	// sent before the lease is over, for the holder may not have looked yet.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		refused := 0
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error { return all(ts, errCut) }
		b.leave = func(ctx context.Context, k driver.Ticket, e driver.Exit, do func() error) error {
			if refused++; refused <= 5 {
				return errCut
			}
			return do()
		}
		begin := time.Now()
		l := mustLock(t, c, "k")
		<-l.Context().Done()
		after(10 * ttl)
		left := b.left()
		if len(left) != 6 {
			t.Fatalf("%d Leaves; want 5 that failed and one that was answered", len(left))
		}
		if first := left[0].at.Sub(begin); first < ttl {
			t.Errorf("the first Leave came after %v, before the store's lease of %v was over", first, ttl)
		}
		l.Release(context.Background())
		steps.Same(t, "Release of a lost lease sent a Leave", len(b.left()), 6)
	})
}
