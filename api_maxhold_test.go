package fencelock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestMaxHoldRenewsUntilItEndsTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 10 * time.Second})
		start := time.Now()
		l := w.lock(c, "k", fencelock.MaxHold(time.Minute))
		for range 59 {
			time.Sleep(time.Second)
			if l.Err() != nil {
				t.Fatalf("ended after %v: %v", time.Since(start), l.Err())
			}
		}
		w.taken("k")
		<-l.Context().Done()
		took(t, start, time.Minute)
		w.is(context.Cause(l.Context()), fencelock.ErrMaxHold, fencelock.ErrLost)
		w.is(l.Err(), fencelock.ErrMaxHold, fencelock.ErrLost)
		w.is(l.Release(bg), fencelock.ErrMaxHold, fencelock.ErrLost)
		w.store.taken()
		time.Sleep(10 * time.Second)
		w.steps("leave") // not renewed any more, and taken out of the store in the end
		w.free("k")
	})
}

// The first look after the end reports it, whether or not a timer has fired yet.
func TestErrAndReleaseKnowMaxHoldByTheClock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		for i := range 400 {
			l := w.lock(c, "k", fencelock.MaxHold(5*time.Second))
			steps.Same(t, "the deadline is in", time.Until(l.Deadline()), 5*time.Second)
			time.Sleep(5 * time.Second)
			if i%2 == 0 {
				w.is(l.Err(), fencelock.ErrMaxHold)
				w.not(l.Err(), fencelock.ErrExpired)
			}
			w.is(l.Release(bg), fencelock.ErrMaxHold)
			time.Sleep(time.Minute)
		}
	})
}

func TestHoldingTimesCountFromTheGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		first := w.lock(a, "k")
		least := w.later(b, "k", fencelock.MinHold(10*time.Second))
		most := w.later(b, "k", fencelock.MaxHold(10*time.Second))
		time.Sleep(time.Hour) // waiting is not holding
		granted := time.Now()
		w.release(first)
		w.release(w.got(least.wait()))
		l := w.got(most.wait())
		took(t, granted, 10*time.Second)
		<-l.Context().Done()
		took(t, granted, 20*time.Second)
	})
}

// A waiter that would hold for six hours is, while it waits, a waiter like any other:
// if it dies, the line goes on after one normal lease.
func TestDeadWaiterForALeaseWithoutRenewalDoesNotJamTheLine(t *testing.T) {
	inWorld(t, func(w *world) {
		a, c := w.client(nil), w.client(nil)
		net, dead := w.apart(&fencelock.Options{})
		first := w.lock(a, "k")
		dies := w.later(dead, "k", fencelock.NoRenewal(), fencelock.TTL(6*time.Hour))
		next := w.later(c, "k")
		time.Sleep(time.Minute)
		net.meddle(down, nil)
		w.release(first)
		start := time.Now()
		l := w.got(next.wait())
		tookAtMost(t, start, 31*time.Second)
		w.release(l)
		dead.Close()
		w.is(errOf(dies.wait()), fencelock.ErrClosed)
	})
}

// A lock that is free when a call comes that would wait for it costs one request, also for a
// lease that is not renewed, on a backend that starts the whole lease with the grant.
func TestFreeLeaseWithoutRenewalCostsOneRequest(t *testing.T) {
	for _, d := range []time.Duration{10 * time.Second, 6 * time.Hour} {
		for _, knows := range []bool{true, false} {
			runInWorld(t, fmt.Sprint(d, " at once ", knows), func(t *testing.T, w *world) {
				w.store.simple = !knows
				want := []string{"enter"}
				if !knows && d > 30*time.Second {
					want = append(want, "renew")
				}
				l := w.lock(w.client(nil), "k", fencelock.NoRenewal(), fencelock.TTL(d))
				w.steps(want...)
				w.has(l, d-d/100-2*time.Millisecond)
			})
		}
	}
}

// TestLeaseWithoutRenewalIsWholeAfterALoss: the first claim is granted, and lost before its call returns.
func TestLeaseWithoutRenewalIsWholeAfterALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 30 * time.Second})
		w.store.meddle(nil, only(atFirst(func(context.Context, string) error {
			time.Sleep(25 * time.Second) // the process is paused
			w.store.Store.Flush()
			return nil
		}), "enter"))
		l := w.lock(c, "k", fencelock.NoRenewal(), fencelock.TTL(time.Minute))
		if left := time.Until(l.Deadline()); left < 55*time.Second || len(w.store.entered()) < 2 {
			w.Errorf("a lease of a minute has %v, after %d claims", left, len(w.store.entered()))
		}
		w.release(l)
	})
}

// freeIn checks that a key is taken until d has passed, and free then.
func (w *world) freeIn(d time.Duration, key string) {
	w.Helper()
	time.Sleep(d - 1)
	w.taken(key)
	time.Sleep(time.Nanosecond)
	w.free(key)
}

// Release returns at once, and the key stays taken until MinHold has passed since the grant.
func TestMinHoldKeepsTheKeyTakenExactlyThatLong(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		start := time.Now()
		l := w.lock(c, "k", fencelock.MinHold(10*time.Second))
		time.Sleep(3 * time.Second)
		w.release(l)
		took(t, start, 3*time.Second)
		w.is(l.Err(), fencelock.ErrReleased)
		line := w.line(c, "k")
		if len(line.Claims) != 1 || !line.Claims[0].Lingering || line.Claims[0].Left != 7*time.Second {
			t.Errorf("%+v", line.Claims)
		}
		w.freeIn(7*time.Second, "k")
		w.store.taken()
		w.release(l)
		w.steps()
	})
}

func TestMinHoldSurvivesClose(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k", fencelock.MinHold(time.Minute))
		c.Close()
		w.is(l.Err(), fencelock.ErrClosed)
		w.freeIn(time.Minute, "k")
	})
}

// A rest below the backend's shortest lease is raised to that: the core sends no
// store what it cannot do. A MinHold that has passed has no rest.
func TestRestOfMinHoldIsNotBelowTheBackendsShortestLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.MinTTL = 5 * time.Second
		for held, want := range map[time.Duration]time.Duration{9 * time.Second: 5 * time.Second, 10 * time.Second: 0} {
			l := w.lock(w.client(nil), "k", fencelock.MinHold(10*time.Second))
			time.Sleep(held)
			w.release(l)
			left := w.store.left()
			steps.Same(t, "lingers for", left[len(left)-1].Linger, want)
		}
	})
}

// A release that is repeated, or late, does not prolong what is left: it counts from the grant.
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
