package fencelock_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// Shutdown in peace: what is held goes on, renewed, until it is released.
func TestShutdownWaitsForReleases(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 3 * time.Second})
		l1, l2 := w.lock(c, "1"), w.got(c.RLock(bg, "2"))
		waits := w.later(c, "1")
		down := w.begin(func() (*fencelock.Lease, error) { return nil, c.Shutdown(bg) })
		steps.Same(t, "a call in line has ended", waits.over(), true)
		w.is(errOf(waits.wait()), fencelock.ErrClosed)
		w.is(errOf(c.Lock(bg, "new")), fencelock.ErrClosed)
		w.is(errOf(c.TryLock(bg, "1")), fencelock.ErrClosed)

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
		steps.Same(t, "Shutdown did not wait for the second", down.over(), false)
		w.release(l2)
		ok(t, errOf(down.wait()))
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
		steps.Same(t, "it took", time.Since(start).Truncate(time.Microsecond), 5*time.Second)
		w.is(l.Err(), fencelock.ErrMaxHold)
		w.free("k")
	})
}

// A call whose answer is on its way when the Client ends gets no lease: nobody would renew or end it.
//
//verify:fault The API, on all stores | Close with locks held, and during Lock
func TestGrantThatArrivesDuringCloseIsNotHandedOut(t *testing.T) {
	for _, opts := range [][]fencelock.Option{nil, {fencelock.Note("beside the local queue")}} {
		for name, end := range endings {
			runInWorld(t, name, func(t *testing.T, w *world) {
				c := w.client(nil)
				answers := make(chan struct{})
				w.store.meddle(nil, only(func(context.Context, string) error { <-answers; return nil }, "enter"))
				k := w.later(c, "k", opts...)
				closed := w.begin(func() (*fencelock.Lease, error) { return nil, end(c) })
				close(answers)
				l, err := k.wait()
				if l != nil {
					t.Errorf("granted on a closed Client: %v", l.Err())
				}
				w.is(err, fencelock.ErrClosed)
				closed.wait()
				w.store.heal()
				w.free("k")
			})
		}
	}
}

// racer prepares one call on key that races Close of c. The call returns the lease that it ends
// with, if any. after is called when both have returned.
type racer func(w *world, c *fencelock.Client, key string) (call func() (*fencelock.Lease, error), after func(err error))

// plainly is a racer that needs no preparation.
func plainly(call func(c *fencelock.Client, key string) (*fencelock.Lease, error)) racer {
	return func(_ *world, c *fencelock.Client, key string) (func() (*fencelock.Lease, error), func(error)) {
		return func() (*fencelock.Lease, error) { return call(c, key) }, func(error) {}
	}
}

// holding is a racer whose call is about a lease that is held.
func holding(call func(c *fencelock.Client, l *fencelock.Lease) (*fencelock.Lease, error)) racer {
	return func(w *world, c *fencelock.Client, key string) (func() (*fencelock.Lease, error), func(error)) {
		l := w.lock(c, key)
		return func() (*fencelock.Lease, error) { return call(c, l) }, func(error) {}
	}
}

var racers = map[string]racer{
	"Lock": plainly(func(c *fencelock.Client, key string) (*fencelock.Lease, error) { return c.Lock(bg, key) }),
	"Acquire": plainly(func(c *fencelock.Client, key string) (*fencelock.Lease, error) {
		return c.Acquire(bg, key, 2, 3)
	}),
	"Reentrant": holding(func(c *fencelock.Client, l *fencelock.Lease) (*fencelock.Lease, error) {
		return c.Lock(l.Context(), l.Key(), fencelock.Reentrant())
	}),
	"Release": holding(func(_ *fencelock.Client, l *fencelock.Lease) (*fencelock.Lease, error) {
		return l, l.Release(bg)
	}),
	"hand-off": holding(func(c *fencelock.Client, l *fencelock.Lease) (*fencelock.Lease, error) {
		go l.Release(bg)
		return c.Lock(bg, l.Key())
	}),
	"Adopt": func(w *world, c *fencelock.Client, key string) (func() (*fencelock.Lease, error), func(error)) {
		other := w.client(nil)
		h := w.detach(other, w.lock(other, key))
		return func() (*fencelock.Lease, error) { return c.Detached(h).Adopt(bg) }, func(err error) {
			_ = other.Detached(h).Release(bg) // if Adopt was too late
			ok(w.T, other.Close())
		}
	},
	"Detach": func(w *world, c *fencelock.Client, key string) (func() (*fencelock.Lease, error), func(error)) {
		l := w.lock(c, key)
		var h fencelock.Handle
		return func() (_ *fencelock.Lease, err error) { h, err = c.Detach(bg, l); return l, err }, func(err error) {
			other := w.client(nil)
			if err == nil { // then nothing else has ended it
				ok(w.T, other.Detached(h).Release(bg))
			}
			ok(w.T, other.Close())
		}
	},
}

// A process that was closed while it adopted a lease held on to it: Close had ended all leases
// before, so nobody renewed or ended this one, and the key stayed taken for a TTL. Close races
// every call that gives out a lease or passes it on: when both have returned, the lease has ended.
func TestCloseRacesWhoeverGetsALease(t *testing.T) {
	for name, prepare := range racers {
		runInWorld(t, name, func(t *testing.T, w *world) {
			for range 200 {
				raceClose(w, prepare)
				if t.Failed() {
					return
				}
			}
		})
	}
}

func raceClose(w *world, prepare racer) {
	const key = "k"
	c := w.client(nil)
	call, after := prepare(w, c, key)
	var ready atomic.Int32
	meet := func() {
		ready.Add(1)
		for ready.Load() < 2 { // closer than a channel would let them meet
			runtime.Gosched()
		}
		for range rand.N(3000) {
			ready.Load()
		}
	}
	var l *fencelock.Lease
	var err error
	var both sync.WaitGroup
	both.Go(func() { meet(); l, err = call() })
	both.Go(func() { meet(); ok(w.T, c.Close()) })
	both.Wait()
	after(err)
	if l != nil && l.Err() == nil {
		w.Errorf("a lease is held after Close: %v", l)
	}
	if err != nil {
		w.is(err, fencelock.ErrClosed)
	}
	w.free(key)
	w.clients = nil
}
