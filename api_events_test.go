package fencelock_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// listener notes all events in the order in which it hears them.
type listener struct {
	mu     sync.Mutex
	only   []fencelock.EventType // empty: all
	names  []string
	events []fencelock.Event
}

func (l *listener) on(e fencelock.Event) {
	if len(l.only) > 0 && !slices.Contains(l.only, e.Type) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, string(e.Type))
	l.events = append(l.events, e)
}

// take returns the events since the last call.
func (l *listener) take() ([]string, []fencelock.Event) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	n, e := l.names, l.events
	l.names, l.events = nil, nil
	return n, e
}

func (w *world) wantEvents(l *listener, want ...string) []fencelock.Event {
	w.Helper()
	names, events := l.take()
	if !slices.Equal(names, want) {
		w.Fatalf("heard %q, want %q (%+v)", names, want, events)
	}
	return events
}

func TestEventsReportTheLifeOfALease(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard listener
		c := w.client(&fencelock.Options{Owner: "me", TTL: 30 * time.Second, OnEvent: heard.on})
		l := w.lock(c, "k")
		e := w.wantEvents(&heard, "acquired")[0]
		if e.Key != "k" || e.Owner != "me" || e.Token != l.Token() || e.Took != 0 || e.Handoff || !e.Time.Equal(time.Now()) {
			t.Errorf("acquired: %+v", e)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		e = w.wantEvents(&heard, "renewed")[0]
		if e.Key != "k" || e.Token != l.Token() || e.Left < 19*time.Second || e.Left > 20*time.Second {
			t.Errorf("renewed: %+v", e)
		}
		w.release(l)
		e = w.wantEvents(&heard, "released")[0]
		if e.Token != l.Token() || e.Took != 10*time.Second+time.Millisecond || e.Err != nil {
			t.Errorf("released: %+v", e)
		}
	})
}

func TestEventsReportAWait(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard listener
		other := w.client(&fencelock.Options{Owner: "other"})
		c := w.client(&fencelock.Options{Owner: "me", OnEvent: heard.on})
		first := w.lock(other, "k")
		k := w.later(c, "k")
		e := w.wantEvents(&heard, "waiting")[0]
		if e.HeldBy == nil || e.HeldBy.Ahead != 1 || e.HeldBy.Owner != "other" || e.HeldBy.Token != first.Token() {
			t.Errorf("waiting: %+v", e)
		}
		time.Sleep(5 * time.Second)
		w.release(first)
		l := w.got(k.wait())
		e = w.wantEvents(&heard, "acquired")[0]
		steps.Same(t, "it took", e.Took, 5*time.Second)
		must(t, c.Break(bg, "k", l.Token(), fencelock.Break{Reason: "deploy"}))
		e = w.wantEvents(&heard, "lost", "broken")[0]
		w.is(e.Err, fencelock.ErrBroken)
		if e.Token != l.Token() || e.Key != "k" {
			t.Errorf("lost: %+v", e)
		}
		l.Release(bg)
		w.wantEvents(&heard)

		first = w.lock(other, "k")
		w.held(errOf(c.Lock(bg, "k", fencelock.Wait(3*time.Second))))
		ev := w.wantEvents(&heard, "waiting", "refused")
		w.is(ev[1].Err, fencelock.ErrNotAcquired)
		if ev[1].Took != 3*time.Second || ev[1].HeldBy == nil || ev[1].HeldBy.Owner != "other" {
			t.Errorf("refused: %+v", ev[1])
		}
		w.held(errOf(c.TryLock(bg, "k")))
		w.wantEvents(&heard, "refused")
		w.release(first)
	})
}

// A renewal that fails is a risk, and not a loss. The next one that is answered says how near the end
// of the lease was.
func TestAtRiskIsReportedOncePerOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard listener
		c := w.client(&fencelock.Options{TTL: 30 * time.Second, OnEvent: heard.on})
		l := w.lock(c, "k")
		w.store.meddle(only(down, "renew"), nil)
		time.Sleep(15 * time.Second)
		ev := w.wantEvents(&heard, "acquired", "at risk")
		w.is(ev[1].Err, errDown, fencelock.ErrUnavailable)
		if ev[1].Left < 15*time.Second || ev[1].Left > 20*time.Second {
			t.Errorf("%v left", ev[1].Left)
		}
		w.store.heal()
		time.Sleep(5 * time.Second)
		if e := w.wantEvents(&heard, "renewed")[0]; e.Left < 11*time.Second || e.Left > 15*time.Second {
			t.Errorf("renewed with %v left", e.Left)
		}
		w.store.meddle(only(silent, "renew"), nil)
		time.Sleep(20 * time.Second)
		w.wantEvents(&heard, "at risk") // a third of the lease is left
		time.Sleep(20 * time.Second)
		ev = w.wantEvents(&heard, "lost")
		w.is(ev[0].Err, fencelock.ErrExpired)
		w.is(l.Err(), fencelock.ErrExpired)
	})
}

func TestWarnReportsATTLThatTheBackendCannotDo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.MinTTL, w.store.info.MaxTTL = 2*time.Second, time.Hour
		heard := listener{only: []fencelock.EventType{fencelock.EventWarning}}
		c := w.client(&fencelock.Options{OnEvent: heard.on})
		for range 3 {
			w.release(w.lock(c, "k", fencelock.TTL(time.Second)))
			w.release(w.lock(c, "k", fencelock.TTL(2*time.Hour)))
		}
		for i, claim := range w.store.entered() {
			steps.Same(t, "the TTL", claim.TTL, []time.Duration{2 * time.Second, time.Hour}[i%2])
		}
		w.wantEvents(&heard, "warning", "warning")
	})
}

// Each wait has a number, so that its end can be told from the end of another call, and from
// that of a call that did not wait.
func TestWaitsAreNumbered(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard listener
		other, c := w.client(nil), w.client(&fencelock.Options{OnEvent: heard.on})
		first := w.lock(other, "k")
		a := w.later(c, "k") // in the store's line
		b := w.later(c, "k") // behind a, in this process
		w.held(errOf(c.Lock(bg, "k", fencelock.Wait(time.Second))))
		w.held(errOf(c.TryLock(bg, "k")))
		w.release(first)
		w.release(w.got(a.wait()))
		w.release(w.got(b.wait()))
		w.release(w.lock(c, "k"))
		names, events := heard.take()
		var got []string
		for i, e := range events {
			if names[i] != "released" {
				got = append(got, fmt.Sprint(names[i], " ", e.Wait))
			}
		}
		want := []string{"waiting 1", "waiting 2", "waiting 3", "refused 3", "refused 0", "acquired 1", "acquired 2", "acquired 0"}
		if !slices.Equal(got, want) {
			t.Errorf("heard %q, want %q", got, want)
		}
	})
}
