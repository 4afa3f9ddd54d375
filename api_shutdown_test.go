package fencelock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
)

// Shutdown in peace: what is held goes on, renewed, until it is released.
func TestShutdownWaitsForReleases(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 3 * time.Second})
		l1, l2 := w.lock(c, "1"), w.got(c.RLock(bg, "2"))
		waits := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "1") })
		down := w.begin(func() (*fencelock.Lease, error) { return nil, c.Shutdown(bg) })
		if !waits.over() {
			t.Error("a call in line goes on")
		}
		w.is(errOf(waits.wait()), fencelock.ErrClosed)
		w.is(errOf(c.Lock(bg, "new")), fencelock.ErrClosed)
		_, err := c.TryLock(bg, "1")
		w.is(err, fencelock.ErrClosed)

		time.Sleep(time.Minute)
		for _, l := range []*fencelock.Lease{l1, l2} {
			if l.Err() != nil || l.Context().Err() != nil {
				t.Errorf("ended: %v", l.Err())
			}
			ok(t, l.Renew(bg))
		}
		// To share what is held takes no new claim.
		w.release(w.got(c.Lock(l1.Context(), "1", fencelock.Reentrant())))
		w.taken("1")
		w.release(l1)
		w.free("1")
		if down.over() {
			t.Error("Shutdown did not wait for the second")
		}
		w.release(l2)
		ok(t, errOf(down.wait()))
	})
}

func TestShutdownEndsWhatIsLeftWhenItsContextEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k")
		cause := errors.New("the pod must go")
		ctx, cancel := context.WithTimeoutCause(bg, 10*time.Second, cause)
		defer cancel()
		start := time.Now()
		err := c.Shutdown(ctx)
		w.is(err, context.DeadlineExceeded, cause)
		took(t, start, 10*time.Second)
		w.is(l.Err(), fencelock.ErrClosed)
		w.free("k")
	})
}

func TestShutdownsAndClosesTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k")
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				ok(t, c.Shutdown(bg))
			})
		}
		synctest.Wait()
		for range 3 {
			wg.Go(func() { c.Close() })
		}
		wg.Wait()
		w.is(l.Err(), fencelock.ErrClosed)
	})
}

// A lease that is lost is over as well: Shutdown does not wait for its Release.
func TestShutdownDoesNotWaitForALostLease(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 10 * time.Second})
		l := w.lock(c, "k", fencelock.MaxHold(5*time.Second))
		start := time.Now()
		ok(t, c.Shutdown(bg))
		// A timer of the Client that is due fires a nanosecond later.
		if d := time.Since(start); d.Truncate(time.Microsecond) != 5*time.Second {
			t.Errorf("it took %v", d)
		}
		w.is(l.Err(), fencelock.ErrMaxHold)
		w.free("k")
	})
}

// A call whose answer is on its way when the Client ends must not come back with a
// lease that nobody renews: Close had no chance to end it.
//
//verify:fault The API, on all stores | Close with locks held, and during Lock
func TestGrantThatArrivesDuringCloseIsNotHandedOut(t *testing.T) {
	for _, how := range []string{"Enter", "the renewal before the grant"} {
		for _, opts := range [][]fencelock.Option{nil, {fencelock.Note("beside the local queue")}} {
			for name, end := range endings {
				runInWorld(t, how+"/"+name, func(t *testing.T, w *world) {
					c := w.client(&fencelock.Options{TTL: 10 * time.Second})
					other := w.client(nil)
					hold := make(chan struct{})
					pause := 5 * time.Second
					if how == "Enter" {
						pause = time.Second // the lease needs no renewal before the grant
						w.store.meddle(nil, only(func(context.Context, string) error { <-hold; return nil }, "enter"))
					} else {
						// The answer comes when more than a third of the lease has passed.
						w.store.meddle(nil, only(func(_ context.Context, step string) error {
							if step == "enter" {
								time.Sleep(4 * time.Second)
							} else {
								<-hold
							}
							return nil
						}, "enter", "renew"))
					}
					k := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "k", opts...) })
					time.Sleep(pause)
					if k.over() {
						t.Fatal("nothing is on its way", k.err)
					}
					closed := w.begin(func() (*fencelock.Lease, error) { return nil, end(c) })
					close(hold)
					l, err := k.wait()
					if l != nil {
						t.Errorf("granted on a closed Client: %v", l.Err())
					}
					w.is(err, fencelock.ErrClosed)
					closed.wait()
					w.store.heal()
					w.free("k")
					other.Close()
				})
			}
		}
	}
}
