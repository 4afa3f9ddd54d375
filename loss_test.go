package fencelock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

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

const ttl = 10 * time.Second

var errCut = errors.New("connection cut")

//verify:fault Processes | SIGSTOP between request and answer
func TestDeadlineCountsFromSending(t *testing.T) {
	// The answer to Enter takes 3 s. The store's lease began when it got the call, so
	// a deadline counted from the answer would lie 3 s after the store's.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.enter = func(ctx context.Context, c driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			k, err := do()
			after(3 * time.Second)
			return k, err
		}
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error { return all(ts, errCut) }
		start := time.Now()
		l := mustLock(t, c, "k")
		<-l.Context().Done()
		tookAtMost(t, start, ttl-ttl/100)
		if err := context.Cause(l.Context()); !errors.Is(err, fencelock.ErrExpired) || !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("the cause is %v", err)
		}
		b.set(func() { b.renew = nil })
		after(ttl)
	})
}

func TestLateAnswerMovesNoDeadlineBack(t *testing.T) {
	// The automatic renewal is answered 3 s late. One by hand, sent after it, was answered
	// at once and has put the deadline further than the late answer knows of.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			late := b.renewals() == 1
			errs := do()
			if late {
				after(3 * time.Second)
			}
			return errs
		}
		l := mustLock(t, c, "k")
		after(ttl/3 + time.Second)
		must(t, l.Renew(context.Background()))
		before := l.Deadline()
		after(2100 * time.Millisecond) // the late answer has come, the next renewal has not been sent
		if got := l.Deadline(); got.Before(before) {
			t.Errorf("a late answer moved the deadline back by %v", before.Sub(got))
		}
		mustRelease(t, l)
	})
}

func TestRenewalCountsFromSending(t *testing.T) {
	// Each renewal is answered 3 s late, then none any more.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		var last time.Time
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			if b.renewals() > 3 {
				return all(ts, errCut)
			}
			last = time.Now()
			errs := do()
			after(3 * time.Second)
			return errs
		}
		l := mustLock(t, c, "k")
		<-l.Context().Done()
		if got := time.Since(last); got > ttl-ttl/100 || got < ttl-ttl/50 {
			t.Errorf("the context ended %v after the last answered renewal was sent; want just below %v", got, ttl)
		}
		after(ttl)
	})
}

//verify:fault Processes | SIGSTOP between request and answer
func TestAnswerAfterItsOwnDeadlineIsNoGrant(t *testing.T) {
	// A driver that ignores its time limit answers "granted" 11 s after it was asked
	// for a lease of 10 s. The store has given the key to somebody else by then.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.enter = func(ctx context.Context, c driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			k, err := do()
			if len(b.entered()) == 1 {
				after(11 * time.Second)
			}
			return k, err
		}
		other := plain(t, s)
		got := lockLater(t, c)
		after(10500 * time.Millisecond)
		l2 := mustLock(t, other, "k")
		after(5 * time.Second)
		nothing(t, got, "granted on the word of an answer whose lease was over, while another one holds the key")
		mustRelease(t, l2)
		l1 := <-got
		rises(t, l2.Token(), l1.Token())
		mustRelease(t, l1)
	})
}

func TestLatePushDoesNotReviveWaiter(t *testing.T) {
	// A waiter's renewals fail, so its claim ends in the store while it waits. Then a
	// push that was held up says "granted". Its claim is gone: another one holds the key.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		holder := plain(t, s)
		l := mustLock(t, holder, "k")
		b, c := tapped(t, s)
		lie := true
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error { return all(ts, errCut) }
		b.await = func(ctx context.Context, k driver.Ticket, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			if !lie {
				return do()
			}
			lie = false
			after(ttl + time.Second)
			k.Granted = true
			return k, nil
		}
		got := lockLater(t, c)
		after(ttl + 2*time.Second)
		nothing(t, got, "granted by a push for a claim whose lease was over")
		if n := len(b.entered()); n != 2 || b.entered()[0].ID == b.entered()[1].ID {
			t.Errorf("%d Enters; want a second one with a new ID", n)
		}
		b.set(func() { b.renew = nil })
		mustRelease(t, l)
		mustRelease(t, <-got)
	})
}

func TestOldGrantIsRenewedBeforeLockReturns(t *testing.T) {
	// The push arrives when half of the waiter's lease has passed since its last
	// renewal. Handing it out like that would leave its holder half a lease.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		holder := plain(t, s)
		l := mustLock(t, holder, "k")
		b := newTap(s)
		begin := time.Now()
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			if time.Since(begin) < 5*time.Second {
				return all(ts, errCut)
			}
			return do()
		}
		c := client(t, b, &fencelock.Options{TTL: ttl, Backoff: func(int, error) (time.Duration, bool) {
			return time.Hour, true
		}})
		got := lockLater(t, c)
		after(4900 * time.Millisecond)
		mustRelease(t, l)
		l2 := <-got
		if left := time.Until(l2.Deadline()); left < 2*ttl/3-200*time.Millisecond {
			t.Errorf("Lock returned after %v with %v left of a lease of %v", time.Since(begin), left, ttl)
		}
		mustRelease(t, l2)
	})
}
