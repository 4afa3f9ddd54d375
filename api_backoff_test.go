package fencelock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

func TestBackoffs(t *testing.T) {
	second := fencelock.ConstantBackoff(time.Second)
	for name, test := range map[string]struct {
		b     fencelock.Backoff
		tries int // after how many failures it gives up; 0: never
	}{
		"constant":            {second, 0},
		"three tries":         {fencelock.LimitTries(second, 3), 3},
		"one try":             {fencelock.LimitTries(second, 1), 1},
		"no try":              {fencelock.LimitTries(second, 0), 1},
		"5 s of pauses":       {fencelock.LimitTime(second, 5*time.Second), 6},
		"less than one pause": {fencelock.LimitTime(second, time.Millisecond), 1},
		"pauses of nothing":   {fencelock.LimitTime(fencelock.ConstantBackoff(0), 5*time.Millisecond), 6},
		"both limits":         {fencelock.LimitTime(fencelock.LimitTries(second, 2), time.Hour), 2},
		"the other way round": {fencelock.LimitTries(fencelock.LimitTime(second, 3*time.Second), 9), 4},
	} {
		gaveUp := 0
		for attempt := 1; attempt <= 20 && gaveUp == 0; attempt++ {
			if _, again := test.b(attempt, nil); !again {
				gaveUp = attempt
			}
		}
		if gaveUp != test.tries {
			t.Errorf("%s: gave up after failure %d, want %d", name, gaveUp, test.tries)
		}
	}
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
		twice := fencelock.LimitTries(fencelock.ConstantBackoff(time.Second), 2)
		c := w.client(&fencelock.Options{Backoff: twice})
		w.store.meddle(down, nil)
		start := time.Now()
		err := errOf(c.Lock(bg, "k"))
		took(t, start, time.Second)
		w.is(err, fencelock.ErrUnavailable, errDown)
		entered := func(want int) { // a Leave follows in the background
			if n := len(w.store.entered()); n != want {
				t.Errorf("%d Enters, want %d", n, want)
			}
		}
		entered(2)
		w.is(errOf(c.Lock(bg, "k", fencelock.Retry(fencelock.LimitTries(twice, 1)))), fencelock.ErrUnavailable, errDown)
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
		once := fencelock.Retry(fencelock.LimitTries(fencelock.ConstantBackoff(time.Second), 1))
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
