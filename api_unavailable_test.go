package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestContextThatHasEndedAsksNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		cause := errors.New("too late")
		ctx, cancel := context.WithCancelCause(bg)
		cancel(cause)
		w.is(errOf(c.Lock(ctx, "k")), context.Canceled, cause)
		w.is(errOf(c.LockAll(ctx, []string{"a", "b"})), context.Canceled, cause)
		w.is(errOf(c.Once(ctx, "k", time.Time{}, nil)), context.Canceled, cause)
		err := c.Do(ctx, "k", func(context.Context, *fencelock.Lease) error { t.Error("f ran"); return nil })
		w.is(err, context.Canceled, cause)
		w.not(err, fencelock.ErrUnavailable)
		w.steps()
	})
}

func lockWithWait(c *fencelock.Client) error {
	_, err := c.Lock(bg, "k", fencelock.Wait(3*time.Second))
	return err
}

func lockWithDeadline(t *testing.T, c *fencelock.Client) error {
	ctx, cancel := context.WithTimeout(bg, 3*time.Second)
	defer cancel()
	_, err := c.Lock(ctx, "k")
	is(t, err, context.DeadlineExceeded)
	return err
}

// Only "somebody else has it" says anything about the lock; "nobody answered" does not.
func TestNoAnswerIsUnavailableAndNeverNotAcquired(t *testing.T) {
	for name, fault := range faults {
		for how, try := range map[string]func(c *fencelock.Client) error{
			"Wait": lockWithWait,
			"ctx":  func(c *fencelock.Client) error { return lockWithDeadline(t, c) },
			"try":  func(c *fencelock.Client) error { return errOf(c.TryLock(bg, "k")) },
			"try with ctx": func(c *fencelock.Client) error {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				_, err := c.TryLock(ctx, "k")
				is(t, err, context.DeadlineExceeded)
				return err
			},
			"try of a lease of hours": func(c *fencelock.Client) error {
				return errOf(c.TryLock(bg, "k", fencelock.NoRenewal(), fencelock.TTL(6*time.Hour)))
			},
			"RLock": func(c *fencelock.Client) error { return errOf(c.RLock(bg, "k", fencelock.Wait(3*time.Second))) },
			"Line":  func(c *fencelock.Client) error { return errOf(c.Line(bg, "k")) },
			"Break": func(c *fencelock.Client) error { return c.Break(bg, "k", 1, fencelock.Break{}) },
		} {
			runInWorld(t, name+"/"+how, func(t *testing.T, w *world) {
				w.store.meddle(fault, nil)
				c := w.client(&fencelock.Options{TTL: 10 * time.Second})
				start := time.Now()
				err := try(c)
				w.is(err, fencelock.ErrUnavailable)
				w.not(err, fencelock.ErrNotAcquired, fencelock.ErrLost)
				if name == "down" {
					w.is(err, errDown)
				}
				limit := 14 * time.Second
				if strings.HasPrefix(how, "try") {
					limit = 2 * time.Second
				}
				tookAtMost(t, start, limit)
			})
		}
	}
}

// What the store said is not forgotten when the end of the waiting cuts the last call short.
func TestWhatTheStoreSaidOutlivesTheLastCall(t *testing.T) {
	for name, lock := range map[string]func(c *fencelock.Client) error{
		"Wait": lockWithWait,
		"ctx":  func(c *fencelock.Client) error { return lockWithDeadline(t, c) },
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			start := time.Now()
			w.store.meddle(func(ctx context.Context, step string) error {
				if time.Since(start) < 2*time.Second {
					return errDown
				}
				return silent(ctx, step)
			}, nil)
			c := w.client(&fencelock.Options{TTL: 10 * time.Second})
			w.is(lock(c), fencelock.ErrUnavailable, errDown)
		})
	}
}

// The second goroutine of a process, which has not asked the store, gets the same as the first.
func TestNoAnswerIsUnavailableAlsoBehindTheFront(t *testing.T) {
	for name, fault := range faults {
		for how, opts := range map[string][]fencelock.Option{
			"ctx": nil, "Wait": {fencelock.Wait(time.Second)}, "a try": {fencelock.Wait(0)},
		} {
			runInWorld(t, name+"/"+how, func(t *testing.T, w *world) {
				w.store.meddle(fault, nil)
				c := w.client(&fencelock.Options{TTL: 10 * time.Second})
				ctx, cancel := context.WithCancel(bg)
				front := w.begin(func() (*fencelock.Lease, error) { return c.Lock(ctx, "k") })
				time.Sleep(time.Second)

				start := time.Now()
				short, end := context.WithTimeout(bg, 3*time.Second)
				defer end()
				_, err := c.Lock(short, "k", opts...)
				w.is(err, fencelock.ErrUnavailable)
				w.not(err, fencelock.ErrNotAcquired)
				steps.Same(t, "its context ended", errors.Is(err, context.DeadlineExceeded), how == "ctx")
				took(t, start, map[string]time.Duration{"ctx": 3 * time.Second, "Wait": time.Second, "a try": 2 * time.Second}[how])
				cancel()
				w.is(errOf(front.wait()), fencelock.ErrUnavailable, context.Canceled)
			})
		}
	}
}

// A backend that somebody else closed will not answer later, so the call does not wait.
func TestClosedBackendEndsTheCall(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(func(context.Context, string) error { return driver.ErrClosed }, nil)
		start := time.Now()
		_, err := w.client(nil).Lock(bg, "k", fencelock.Wait(time.Hour))
		took(t, start, 0)
		w.is(err, fencelock.ErrClosed, driver.ErrClosed)
		w.not(err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable)
	})
}

// TestOutageWhileACallIsInLineIsUnavailable: the store fails after the call has taken its
// place in line. When its own lease there is over, who holds the lock is known to nobody.
func TestOutageWhileACallIsInLineIsUnavailable(t *testing.T) {
	for _, handOff := range []int{1, 8} {
		for _, place := range []string{"front", "behind the front"} {
			runInWorld(t, fmt.Sprint(place, ", hand-off ", handOff), func(t *testing.T, w *world) {
				l := w.lock(w.brief(), "k")
				b, c := w.apart(&fencelock.Options{TTL: ttl, HandOff: handOff})
				b.meddle(only(silent, "await"), nil) // it does not hear that the lock is free
				if place != "front" {
					w.later(c, "k")
				}
				time.AfterFunc(time.Second, func() { b.meddle(only(down, "enter", "await", "renew"), nil) })
				time.AfterFunc(2*time.Second, func() { l.Release(bg) })
				_, err := c.Lock(bg, "k", fencelock.Wait(12*ttl))
				w.is(err, fencelock.ErrUnavailable) // for twelve leases
				w.not(err, fencelock.ErrNotAcquired)
			})
		}
	}
}

// TestLimitOfOneRequestIsNotTheCallersDeadline: a request has a part of the time of its call.
func TestLimitOfOneRequestIsNotTheCallersDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.brief()
		w.store.meddle(only(silent, "enter"), nil)
		for _, err := range []error{errOf(c.Lock(bg, "k", fencelock.Wait(ttl))), errOf(c.TryLock(bg, "k"))} {
			w.is(err, fencelock.ErrUnavailable)
			w.not(err, context.DeadlineExceeded) // the ctx of neither has an end
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		w.is(errOf(c.Lock(ctx, "k")), fencelock.ErrUnavailable, context.DeadlineExceeded)
	})
}

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
		first := w.later(c, "k", once)
		next := w.later(c, "k")
		w.is(errOf(first.wait()), fencelock.ErrUnavailable)
		w.store.heal()
		w.release(w.got(next.wait()))
		claims := w.store.entered()
		steps.Same(t, "the ID of the claim", claims[len(claims)-1].ID, claims[0].ID)
	})
}

// A call is granted, and the answer to its first renewal comes after the lease. Its own claim, which the store has
// still, is not who holds the key.
func TestCallIsNotRefusedByItsOwnClaim(t *testing.T) {
	for how, wait := range map[string]fencelock.Option{"try": fencelock.Wait(0), "Wait": fencelock.Wait(12 * time.Second)} {
		for _, left := range []bool{true, false} {
			runInWorld(t, fmt.Sprintf("%s/left=%v", how, left), func(t *testing.T, w *world) {
				c := w.client(&fencelock.Options{TTL: 10 * time.Second})
				entered := atFirst(takes(3900 * time.Millisecond))
				var before hook
				if !left {
					before = only(down, "leave")
				}
				w.store.meddle(before, func(ctx context.Context, step string) error {
					switch step {
					case "enter":
						return entered(ctx, step)
					case "renew":
						time.Sleep(7 * time.Second)
					}
					return nil
				})
				l, err := c.Lock(bg, "k", wait)
				if left {
					w.release(w.got(l, err))
					return
				}
				w.is(err, fencelock.ErrUnavailable, errDown)
				w.not(err, fencelock.ErrNotAcquired)
			})
		}
	}
}
