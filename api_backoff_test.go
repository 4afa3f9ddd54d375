package fencelock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// pausing is a Backoff that pauses for d and gives up after n failures in a row.
func pausing(d time.Duration, n int) fencelock.Backoff {
	return func(attempt int, _ error) (time.Duration, bool) { return d, attempt < n }
}

func TestExponentialBackoff(t *testing.T) {
	grows := fencelock.ExponentialBackoff(10*time.Millisecond, time.Second)
	for attempt, want := range map[int]time.Duration{1: 10, 2: 20, 5: 160, 7: 640, 8: 1000, 99: 1000, 1 << 40: 1000} {
		want *= time.Millisecond
		if d, again := grows(attempt, nil); d < want/2 || d > want || !again {
			t.Errorf("failure %d: a pause of %v, want %v to %v", attempt, d, want/2, want)
		}
	}
}

// A Backoff that gives up ends the call with the last error, in Options and for one call.
func TestBackoffThatGivesUpEndsTheCall(t *testing.T) {
	inWorld(t, func(w *world) {
		twice := pausing(time.Second, 2)
		c := w.client(&fencelock.Options{Backoff: twice})
		w.store.meddle(down, nil)
		start := time.Now()
		err := errOf(c.Lock(bg, "k"))
		took(t, start, time.Second)
		w.is(err, fencelock.ErrUnavailable, errDown)
		entered := func(want int) { // a Leave follows in the background
			steps.Same(t, "Enters", len(w.store.entered()), want)
		}
		entered(2)
		w.is(errOf(c.Lock(bg, "k", fencelock.Retry(pausing(time.Second, 1)))), fencelock.ErrUnavailable, errDown)
		entered(3)
		w.is(errOf(c.Lock(bg, "k", fencelock.Retry(nil))), fencelock.ErrInvalid)
		entered(3)
	})
	inWorld(t, func(w *world) { // a store without a line is asked again and again
		w.store.info.Fair = false
		held := w.lock(w.client(nil), "k")
		var last error
		_, err := w.client(nil).Lock(bg, "k", fencelock.Retry(func(attempt int, err error) (time.Duration, bool) {
			last = err
			return time.Second, attempt < 3
		}))
		w.is(err, fencelock.ErrNotAcquired)
		if !errors.Is(err, last) || w.held(last).Token != held.Token() {
			t.Errorf("Backoff was given %v, the caller %v", last, err)
		}
	})
}

// Renewals and releases go on, whatever a Backoff says of giving up.
func TestBackoffEndsNoLease(t *testing.T) {
	inWorld(t, func(w *world) {
		never := func(int, error) (time.Duration, bool) { return time.Second, false }
		c := w.client(&fencelock.Options{TTL: 30 * time.Second, Backoff: never})
		l := w.lock(c, "k")
		w.store.meddle(down, nil)
		time.AfterFunc(15*time.Second, w.store.heal)
		time.Sleep(time.Minute)
		ok(t, l.Err())
		w.store.meddle(down, nil)
		w.is(l.Release(bg), fencelock.ErrUnavailable)
		time.Sleep(5 * time.Second)
		w.store.heal()
		time.Sleep(10 * time.Second)
		w.free("k")
	})
}

// If the front of a queue gives up, the next goroutine asks with its own Backoff.
func TestFrontThatGivesUpLeavesItsPlaceToTheNext(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		once := fencelock.Retry(pausing(time.Second, 1))
		w.store.meddle(func(ctx context.Context, _ string) error {
			time.Sleep(100 * time.Millisecond)
			return errDown
		}, nil)
		first := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "k", once) })
		next := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "k") })
		w.is(errOf(first.wait()), fencelock.ErrUnavailable)
		w.store.heal()
		w.release(w.got(next.wait()))
		claims := w.store.entered()
		if a, b := claims[0].ID, claims[len(claims)-1].ID; a != b {
			t.Errorf("the claim %s was replaced by %s", a, b)
		}
	})
}
