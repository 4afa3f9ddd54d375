package fencelock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
)

// progressTTL is the lease of these tests. It is renewed every ten seconds.
const progressTTL = 30 * time.Second

// stallWorld is a lease whose holder may be silent for limit, and who hears its events.
type stallWorld struct {
	*world
	heard listener
	c     *fencelock.Client
	l     *fencelock.Lease
}

func inStallWorld(t *testing.T, limit time.Duration, f func(w *stallWorld)) {
	t.Helper()
	inWorld(t, func(w *world) {
		s := &stallWorld{world: w}
		s.c = w.client(&fencelock.Options{TTL: progressTTL, OnEvent: s.heard.on})
		s.l = w.lock(s.c, "k", fencelock.Progress(limit))
		s.wantEvents(&s.heard, "acquired")
		w.store.taken()
		f(s)
	})
}

// wantStall waits until after, and wants the stall to be reported then, once.
func (w *stallWorld) wantStall(after time.Duration) {
	w.Helper()
	time.Sleep(after - time.Millisecond)
	if names, _ := w.heard.take(); slices.Contains(names, "at risk") {
		w.Fatal("the holder is at risk before its time")
	}
	time.Sleep(time.Millisecond)
	e := w.wantEvents(&w.heard, "at risk")[0]
	w.is(e.Err, fencelock.ErrStalled)
	if e.Left <= 0 {
		w.Errorf("event %+v", e)
	}
	w.store.taken()
}

func TestProgressRenewsWhileTheHolderTicks(t *testing.T) {
	inStallWorld(t, 20*time.Second, func(w *stallWorld) {
		for range 40 {
			time.Sleep(15 * time.Second)
			w.l.Tick()
		}
		names, _ := w.heard.take()
		if n := len(names); n < 50 || slices.ContainsFunc(names, func(s string) bool { return s != "renewed" }) {
			t.Errorf("in ten minutes it heard %q", names)
		}
		last := time.Now()
		w.wantStall(20 * time.Second)
		<-w.l.Context().Done()
		tookAtMost(t, last, 20*time.Second+progressTTL)
		w.is(context.Cause(w.l.Context()), fencelock.ErrStalled, fencelock.ErrLost)
		w.not(w.l.Err(), fencelock.ErrExpired)
		w.is(w.wantEvents(&w.heard, "lost")[0].Err, fencelock.ErrStalled)
		w.l.Tick() // too late
		w.is(w.l.Release(bg), fencelock.ErrStalled, fencelock.ErrLost)
		time.Sleep(time.Millisecond)
		w.steps("leave") // and no renewal since the stall
		w.free("k")
	})
}

func TestTickInTimeRenewsAtOnce(t *testing.T) {
	inStallWorld(t, 25*time.Second, func(w *stallWorld) {
		w.wantStall(25 * time.Second)
		time.Sleep(24 * time.Second) // the last renewal was at 20 s, so a second is left
		w.l.Tick()
		time.Sleep(time.Millisecond)
		w.wantEvents(&w.heard, "renewed")
		w.steps("renew")
		w.has(w.l, 29*time.Second)
		w.wantStall(25*time.Second - time.Millisecond) // counted from that Tick
		w.release(w.l)
	})
}

// A Tick after the end of the lease neither renews it nor changes the cause of its end.
func TestTickAfterTheEndIsTooLate(t *testing.T) {
	for range 50 {
		inStallWorld(t, 20*time.Second, func(w *stallWorld) {
			time.Sleep(20 * time.Second)
			time.Sleep(time.Until(w.l.Deadline()))
			w.l.Tick() // the timer of the watchdog is due in the same moment
			w.is(w.l.Err(), fencelock.ErrStalled)
			w.l.Tick()
			if w.store.taken(); w.l.Release(bg) == nil {
				t.Error("it was released")
			}
			time.Sleep(time.Millisecond)
			w.steps("leave")
		})
	}
}

// Ticks come in the moment in which the watchdog decides that the holder is stalled.
// Whatever comes first, the lease goes on.
func TestTickRacesTheWatchdog(t *testing.T) {
	for range 300 {
		inStallWorld(t, 20*time.Second, func(w *stallWorld) {
			for range 5 {
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						time.Sleep(20 * time.Second)
						w.l.Tick()
					})
				}
				all.Wait()
			}
			synctest.Wait()
			must(t, w.l.Err())
			time.Sleep(11 * time.Second)
			w.has(w.l, 15*time.Second)
			w.release(w.l)
		})
	}
}

// A renewal that was sent in time is answered after the stall: it counts from its sending,
// and the lease stays at risk.
func TestRenewalOnItsWayWhenTheHolderStalls(t *testing.T) {
	inStallWorld(t, 22*time.Second, func(w *stallWorld) {
		w.store.meddle(nil, only(takes(4*time.Second), "renew"))
		time.Sleep(22 * time.Second)
		w.is(w.wantEvents(&w.heard, "renewed", "at risk")[1].Err, fencelock.ErrStalled)
		w.store.taken()
		time.Sleep(5 * time.Second)
		w.wantEvents(&w.heard, "renewed")
		<-w.l.Context().Done()
		w.is(w.l.Err(), fencelock.ErrStalled)
		w.wantEvents(&w.heard, "lost")
		w.steps()
	})
}

// A Tick while a renewal is under way sends no second one.
func TestTickDuringARenewal(t *testing.T) {
	inStallWorld(t, 22*time.Second, func(w *stallWorld) {
		w.store.meddle(only(takes(4*time.Second), "renew"), nil)
		time.Sleep(23 * time.Second)
		w.l.Tick()
		w.store.heal()
		time.Sleep(5 * time.Second)
		w.steps("renew", "renew") // at 10 s, and at 20 or 24 s
		w.wantEvents(&w.heard, "renewed", "at risk", "renewed")
		w.release(w.l)
	})
}

// A store that is down ends the lease of a holder that ticks as it ends any other.
func TestHolderThatTicksExpiresWithoutTheStore(t *testing.T) {
	inStallWorld(t, 20*time.Second, func(w *stallWorld) {
		w.store.meddle(down, nil)
		for w.l.Err() == nil {
			time.Sleep(time.Second)
			w.l.Tick()
		}
		w.is(w.l.Err(), fencelock.ErrExpired)
		w.not(w.l.Err(), fencelock.ErrStalled)
	})
}

// A Tick brings the lease back while the store is down: then the store decides.
func TestStallDuringAnOutage(t *testing.T) {
	inStallWorld(t, 15*time.Second, func(w *stallWorld) {
		time.Sleep(12 * time.Second)
		w.store.meddle(down, nil)
		time.Sleep(3 * time.Second)
		w.is(w.wantEvents(&w.heard, "renewed", "at risk")[1].Err, fencelock.ErrStalled)
		time.Sleep(3 * time.Second)
		w.l.Tick()
		time.Sleep(time.Millisecond)
		w.is(w.wantEvents(&w.heard, "at risk")[0].Err, fencelock.ErrUnavailable)
		w.store.heal()
		time.Sleep(5 * time.Second)
		if names, _ := w.heard.take(); !slices.Contains(names, "renewed") {
			t.Errorf("after the outage: %q", names)
		}
		w.release(w.l)
	})
}

func TestProgressCountsFromTheGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard listener
		other, c := w.client(nil), w.client(&fencelock.Options{OnEvent: heard.on})
		first := w.lock(other, "k")
		k := w.later(c, "k", fencelock.Progress(20*time.Second))
		time.Sleep(time.Hour) // a waiter is renewed without Ticks
		w.release(first)
		l := w.got(k.wait())
		time.Sleep(19 * time.Second)
		if names, _ := heard.take(); slices.Contains(names, "at risk") {
			t.Errorf("heard %q", names)
		}
		time.Sleep(time.Second)
		w.is(w.wantEvents(&heard, "at risk")[0].Err, fencelock.ErrStalled)
		w.release(l)
	})
}

func TestHandlesShareTheirProgress(t *testing.T) {
	inStallWorld(t, 20*time.Second, func(w *stallWorld) {
		in := w.got(w.c.Lock(w.l.Context(), "k", fencelock.Reentrant()))
		for range 10 {
			time.Sleep(15 * time.Second)
			in.Tick()
		}
		ok(t, w.l.Err())
		shared := errOf(w.c.Lock(w.l.Context(), "k", fencelock.Reentrant(), fencelock.Progress(time.Minute)))
		w.is(shared, fencelock.ErrInvalid)
		w.release(w.l)
		time.Sleep(20*time.Second + progressTTL)
		w.is(in.Err(), fencelock.ErrStalled)
	})
}

// Renew by hand starts the lease again, and is no Tick.
func TestRenewIsNoTick(t *testing.T) {
	inStallWorld(t, 20*time.Second, func(w *stallWorld) {
		w.wantStall(20 * time.Second)
		ok(t, w.l.Renew(bg))
		w.steps("renew")
		w.has(w.l, 29*time.Second)
		<-w.l.Context().Done()
		w.is(w.l.Err(), fencelock.ErrStalled)
		w.steps()
	})
}

func TestProgressBesideOtherOptions(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: progressTTL})
		l := w.lock(c, "k", fencelock.Progress(time.Minute), fencelock.MaxHold(2*time.Minute))
		for range 4 {
			time.Sleep(30 * time.Second)
			l.Tick()
		}
		w.is(l.Err(), fencelock.ErrMaxHold)
		l = w.lock(c, "k")
		l.Tick() // without Progress
		time.Sleep(time.Hour)
		w.release(l)
		l.Tick()
		l = w.lock(c, "k", fencelock.Progress(1<<63-1))
		time.Sleep(time.Hour)
		_, err := c.Detach(bg, l)
		w.is(err, fencelock.ErrInvalid)
		w.release(l)
	})
}
