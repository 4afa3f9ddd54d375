package fencelock_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

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
	"Lock of a claim of its own": plainly(func(c *fencelock.Client, key string) (*fencelock.Lease, error) {
		return c.Lock(bg, key, fencelock.MaxHold(time.Hour), fencelock.LockDelay(0))
	}),
	"RLock, a try": plainly(func(c *fencelock.Client, key string) (*fencelock.Lease, error) {
		return c.RLock(bg, key, fencelock.Wait(0))
	}),
	"Acquire": plainly(func(c *fencelock.Client, key string) (*fencelock.Lease, error) {
		return c.Acquire(bg, key, 2, 3)
	}),
	"LockAll": plainly(func(c *fencelock.Client, key string) (*fencelock.Lease, error) {
		m, err := c.LockAll(bg, []string{key, key + "2"})
		if err != nil {
			return nil, err
		}
		return fencelock.Held(m.Context(), key), nil
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
