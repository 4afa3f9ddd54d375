package fencelock_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// freeIn checks that a key is taken until d has passed, and free then.
func (w *world) freeIn(d time.Duration, key string) {
	w.Helper()
	time.Sleep(d - 1)
	w.taken(key)
	time.Sleep(time.Nanosecond)
	w.free(key)
}

// The key stays taken until MinHold has passed since the grant, to the instant,
// though Release returned at once.
func TestMinHoldKeepsTheKeyTakenExactlyThatLong(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		start := time.Now()
		l := w.lock(c, "k", fencelock.MinHold(10*time.Second))
		time.Sleep(3 * time.Second)
		w.release(l)
		took(t, start, 3*time.Second)
		w.is(l.Err(), fencelock.ErrReleased)
		line, _ := c.Line(bg, "k")
		if len(line.Claims) != 1 || !line.Claims[0].Lingering || line.Claims[0].Left != 7*time.Second {
			t.Errorf("%+v", line.Claims)
		}
		w.freeIn(7*time.Second, "k")
		w.store.taken()
		w.release(l)
		w.steps()
	})
}

func TestMinHoldThatHasPassedAddsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		for _, opts := range [][]fencelock.Option{{fencelock.MinHold(10 * time.Second)}, {fencelock.MinHold(0)}} {
			l := w.lock(c, "k", opts...)
			time.Sleep(10 * time.Second)
			w.release(l)
			w.free("k")
		}
		for _, e := range w.store.left() {
			steps.Same(t, "lingers for", e.Linger, 0)
		}
	})
}

// The holder's own process waits as well, also who has queued already, and the next
// grant is a larger one.
func TestMinHoldHoldsForTheOwnProcessToo(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		start := time.Now()
		l := w.lock(c, "k", fencelock.MinHold(10*time.Second))
		k := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "k") })
		w.release(l)
		w.held(errOf(c.TryLock(bg, "k")))
		next := w.got(k.wait())
		if d := time.Since(start); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("granted after %v", d)
		}
		rises(t, l.Token(), next.Token())
		w.release(next)
	})
}

func TestMinHoldCountsFromTheGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		first := w.lock(a, "k")
		k := w.begin(func() (*fencelock.Lease, error) { return b.Lock(bg, "k", fencelock.MinHold(10*time.Second)) })
		time.Sleep(time.Hour) // waiting is not holding
		w.release(first)
		l := w.got(k.wait())
		w.release(l)
		w.freeIn(10*time.Second, "k")
	})
}

func TestMinHoldUnderReentrancyCountsFromTheOuterGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k", fencelock.MinHold(10*time.Second))
		time.Sleep(4 * time.Second)
		in := w.got(c.Lock(context.WithoutCancel(l.Context()), "k", fencelock.Reentrant()))
		w.release(l)
		time.Sleep(time.Second)
		w.release(in)
		w.freeIn(5*time.Second, "k")
	})
}

func TestMinHoldSurvivesDoAndClose(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		err := c.Do(bg, "k", func(context.Context, *fencelock.Lease) error { return nil }, fencelock.MinHold(time.Minute))
		ok(t, err)
		l := w.lock(c, "j", fencelock.MinHold(time.Minute))
		c.Close()
		w.is(l.Err(), fencelock.ErrClosed)
		time.Sleep(time.Minute - 1)
		w.taken("k")
		w.taken("j")
		time.Sleep(time.Nanosecond)
		w.free("k")
		w.free("j")
	})
}

func TestMinHoldNeedsABackendThatKeepsIt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.Linger = false
		c := w.client(nil)
		w.is(errOf(c.Lock(bg, "k", fencelock.MinHold(time.Second))), fencelock.ErrInvalid)
		w.steps()
		w.release(w.lock(c, "k", fencelock.MinHold(0)))
	})
}

// A rest below the backend's shortest lease is raised to that: the core sends no
// store what it cannot do.
func TestRestOfMinHoldIsNotBelowTheBackendsShortestLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.MinTTL = 5 * time.Second
		c := w.client(nil)
		l := w.lock(c, "k", fencelock.MinHold(10*time.Second))
		time.Sleep(9 * time.Second)
		w.release(l)
		if e := w.store.left(); len(e) != 1 || e[0].Linger != 5*time.Second {
			t.Errorf("left with %+v", e)
		}
	})
}

// A release that is repeated, or gets through late, does not prolong what is left: it counts
// from the grant.
func TestRepeatedReleaseDoesNotProlongMinHold(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(context.Context, string) error
		heals         time.Duration // since the grant
		free          time.Duration
	}{
		"the reply is lost":                   {nil, only(down, "leave"), 0, 10 * time.Second},
		"it comes late":                       {only(down, "leave"), nil, 5 * time.Second, 10 * time.Second},
		"it comes when nothing is left of it": {only(down, "leave"), nil, 15 * time.Second, 20 * time.Second},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			start := time.Now()
			l := w.lock(w.client(nil), "k", fencelock.MinHold(10*time.Second))
			w.store.meddle(c.before, c.after)
			if err := l.Release(bg); c.after == nil {
				w.is(err, fencelock.ErrUnavailable)
			}
			time.Sleep(time.Until(start.Add(c.heals)))
			w.store.heal()
			if c.heals < 10*time.Second {
				w.freeIn(time.Until(start.Add(c.free)), "k")
				return
			}
			time.Sleep(time.Until(start.Add(c.free))) // until the next try
			w.free("k")
		})
	}
}
