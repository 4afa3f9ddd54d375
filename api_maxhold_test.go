package fencelock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
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

func TestMaxHoldCountsFromTheGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		first := w.lock(a, "k")
		k := w.later(b, "k", fencelock.MaxHold(10*time.Second))
		time.Sleep(time.Hour)
		w.release(first)
		l := w.got(k.wait())
		granted := time.Now()
		<-l.Context().Done()
		took(t, granted, 10*time.Second)
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
				c := w.client(nil)
				start := time.Now()
				l := w.lock(c, "k", fencelock.NoRenewal(), fencelock.TTL(d))
				if steps := w.store.taken(); !slices.Equal(steps, want) {
					t.Errorf("steps %q, want %q", steps, want)
				}
				if end := start.Add(d - d/100 - 2*time.Millisecond); l.Deadline().Before(end) {
					t.Errorf("ends %v too early", end.Sub(l.Deadline()))
				}
			})
		}
	}
}

// However long it waited, what it gets on the grant is d.
func TestLeaseWithoutRenewalThatWaitedIsFullOnItsGrant(t *testing.T) {
	for _, d := range []time.Duration{10 * time.Second, 30 * time.Second, 6 * time.Hour} {
		// None of them ends just when a renewal of the waiting claim is due.
		for i, waited := range []time.Duration{time.Second, 3*time.Second + time.Millisecond, 17 * time.Second, 61 * time.Second} {
			runInWorld(t, d.String()+" after "+waited.String(), func(t *testing.T, w *world) {
				w.store.simple = i%2 == 1
				a, b := w.client(nil), w.client(nil)
				first := w.lock(a, "k")
				k := w.later(b, "k", fencelock.NoRenewal(), fencelock.TTL(d))
				claims := w.store.entered()
				if lease := driverutil.Lease(&claims[len(claims)-1], false); lease > 30*time.Second {
					t.Errorf("waits with a lease of %v", lease)
				}
				time.Sleep(waited)
				w.release(first)
				l := w.got(k.wait())
				if left := time.Until(l.Deadline()); left < d-d/100-2*time.Millisecond {
					t.Errorf("%v left of %v", left, d)
				}
				w.store.taken()
				start := time.Now()
				<-l.Context().Done()
				tookAtMost(t, start, d)
				w.is(l.Err(), fencelock.ErrExpired)
				if steps := w.store.taken(); slices.Contains(steps, "renew") {
					t.Errorf("steps %q", steps)
				}
			})
		}
	}
}

func TestLeaseWithoutRenewalOnABackendThatCannotQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.Fair = false
		a, b := w.client(nil), w.client(nil)
		first := w.lock(a, "k")
		k := w.later(b, "k", fencelock.NoRenewal(), fencelock.TTL(time.Hour))
		time.Sleep(time.Minute)
		for _, c := range w.store.entered() {
			if !c.NoWait {
				t.Errorf("entered %+v", c)
			}
		}
		w.release(first)
		l := w.got(k.wait())
		if left := time.Until(l.Deadline()); left < 59*time.Minute {
			t.Errorf("%v left", left)
		}
		w.release(l)
	})
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
		k := w.later(c, "k")
		w.release(l)
		w.held(errOf(c.TryLock(bg, "k")))
		next := w.got(k.wait())
		if d := time.Since(start); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("granted after %v", d)
		}
		steps.Rises(t, l.Token(), next.Token())
		w.release(next)
	})
}

func TestMinHoldCountsFromTheGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		first := w.lock(a, "k")
		k := w.later(b, "k", fencelock.MinHold(10*time.Second))
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
