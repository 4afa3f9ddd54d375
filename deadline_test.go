package fencelock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

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
