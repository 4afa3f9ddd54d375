package fencelock_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// A renewal is answered well just after the deadline. The holder may have looked
// and gone; the answer must not take that back.
func TestLostLeaseNeverComesBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(nil, only(takes(ttl), "renew")) // ignores its time limit
		heard := listener{only: []fencelock.EventType{fencelock.EventLost}}
		l := w.lock(w.mute(&fencelock.Options{TTL: ttl, OnEvent: heard.on}), "k")
		<-l.Context().Done()
		err := l.Err()
		time.Sleep(5 * ttl)
		if again := l.Err(); again == nil || again != err {
			t.Errorf("first %v, later %v", err, again)
		}
		w.wantEvents(&heard, "lost")
	})
}

// Err is asked at the deadline, from a timer that was set before the Client's own.
//
//verify:fault Processes | SIGSTOP between request and answer
func TestErrReadsTheClockBeforeAnyTimer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(only(silent, "renew"), nil)
		l := w.lock(w.brief(), "k")
		time.Sleep(time.Until(l.Deadline()))
		w.is(l.Err(), fencelock.ErrExpired)
	})
}

// Where claims share a lease, the others keep a lost one in line until a Leave is sent. It is not
// sent before the lease is over, for the holder may not have looked yet.
func TestExpiredLeaseIsLeftToRunOutAndThenLeft(t *testing.T) {
	inWorld(t, func(w *world) {
		refused := 0
		w.store.meddle(func(_ context.Context, step string) error {
			if step == "leave" {
				refused++
			}
			if step == "renew" || step == "leave" && refused <= 5 {
				return errDown
			}
			return nil
		}, nil)
		begin := time.Now()
		l := w.lock(w.brief(), "k")
		<-l.Context().Done()
		time.Sleep(10 * ttl)
		left := w.store.left()
		if len(left) != 6 {
			t.Fatalf("%d Leaves; want 5 that failed and one that was answered", len(left))
		}
		if first := left[0].at.Sub(begin); first < ttl {
			t.Errorf("the first Leave came after %v, before the store's lease of %v was over", first, ttl)
		}
		w.is(l.Release(bg), fencelock.ErrExpired)
		steps.Same(t, "Release of a lost lease sent a Leave", len(w.store.left()), 6)
	})
}

// The answer to Enter takes 3 s. The store's lease began when it got the call, so
// a deadline counted from the answer would lie 3 s after the store's.
//
//verify:fault Processes | SIGSTOP between request and answer
func TestDeadlineCountsFromSending(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(only(down, "renew"), only(takes(3*time.Second), "enter"))
		start := time.Now()
		l := w.lock(w.brief(), "k")
		<-l.Context().Done()
		tookAtMost(t, start, ttl-ttl/100)
		w.is(context.Cause(l.Context()), fencelock.ErrExpired, fencelock.ErrLost)
	})
}

// The automatic renewal is answered 3 s late. One by hand, sent after it, was answered
// at once and has put the deadline further than the late answer knows of.
func TestLateAnswerMovesNoDeadlineBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(nil, only(atFirst(takes(3*time.Second)), "renew"))
		l := w.lock(w.brief(), "k")
		time.Sleep(ttl/3 + time.Second)
		must(t, l.Renew(bg))
		before := l.Deadline()
		time.Sleep(2100 * time.Millisecond) // the late answer has come, the next renewal has not been sent
		if got := l.Deadline(); got.Before(before) {
			t.Errorf("a late answer moved the deadline back by %v", before.Sub(got))
		}
		w.release(l)
	})
}

// Each renewal is answered 3 s late, then none any more.
func TestRenewalCountsFromSending(t *testing.T) {
	inWorld(t, func(w *world) {
		var last time.Time
		w.store.meddle(only(func(context.Context, string) error {
			if w.store.count("renew") > 3 {
				return errDown
			}
			last = time.Now()
			return nil
		}, "renew"), only(takes(3*time.Second), "renew"))
		l := w.lock(w.brief(), "k")
		<-l.Context().Done()
		if got := time.Since(last); got > ttl-ttl/100 || got < ttl-ttl/50 {
			t.Errorf("the context ended %v after the last answered renewal was sent; want just below %v", got, ttl)
		}
	})
}

// A driver that ignores its time limit answers "granted" 11 s after it was asked
// for a lease of 10 s. The store has given the key to somebody else by then.
//
//verify:fault Processes | SIGSTOP between request and answer
func TestAnswerAfterItsOwnDeadlineIsNoGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(nil, only(atFirst(takes(11*time.Second)), "enter"))
		c, other := w.brief(), w.brief()
		k := w.later(c, "k")
		time.Sleep(10500 * time.Millisecond)
		l2 := w.lock(other, "k")
		time.Sleep(5 * time.Second)
		if k.over() {
			t.Fatal("granted on the word of an answer whose lease was over, while another one holds the key")
		}
		w.release(l2)
		l1 := w.got(k.wait())
		steps.Rises(t, l2.Token(), l1.Token())
		w.release(l1)
	})
}

// A waiter's renewals fail, so its claim ends in the store while it waits. Then a
// push that was held up says "granted". Its claim is gone: another one holds the key.
func TestLatePushDoesNotReviveWaiter(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.brief(), "k")
		b, c := w.apart(nil)
		b.meddle(only(down, "renew"), nil)
		late, lies := time.Now().Add(ttl+time.Second), true
		b.awaited = func(k *driver.Ticket) error {
			if lies {
				lies = false
				time.Sleep(time.Until(late))
				k.Granted = true
			}
			return nil
		}
		k := w.later(c, "k")
		time.Sleep(ttl + 2*time.Second)
		if k.over() {
			t.Fatal("granted by a push for a claim whose lease was over")
		}
		if e := b.entered(); len(e) != 2 || e[0].ID == e[1].ID {
			t.Errorf("%d Enters; want a second one with a new ID", len(e))
		}
		b.heal()
		w.release(l)
		w.release(w.got(k.wait()))
	})
}

// The push arrives when half of the waiter's lease has passed since its last
// renewal. Handing it out like that would leave its holder half a lease.
func TestOldGrantIsRenewedBeforeLockReturns(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.brief(), "k")
		begin := time.Now()
		b, c := w.apart(&fencelock.Options{TTL: ttl, Backoff: pausing(time.Hour, 1<<30)})
		b.meddle(only(func(context.Context, string) error {
			if time.Since(begin) < 5*time.Second {
				return errDown
			}
			return nil
		}, "renew"), nil)
		k := w.later(c, "k")
		time.Sleep(4900 * time.Millisecond)
		w.release(l)
		l2 := w.got(k.wait())
		w.has(l2, 2*ttl/3-200*time.Millisecond)
		w.release(l2)
	})
}
