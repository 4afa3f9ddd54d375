package fencelock_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// A lease that is renewed by hand has its whole TTL from the grant, however long the call
// waited, and from each Renew.
func TestNoRenewal(t *testing.T) {
	for _, waits := range []time.Duration{0, 17 * time.Second} {
		inWorld(t, func(w *world) {
			var heard listener
			other, c := w.client(nil), w.client(&fencelock.Options{OnEvent: heard.on})
			first := w.lock(other, "k")
			time.AfterFunc(waits, func() { w.release(first) })
			l := w.got(c.Lock(bg, "k", fencelock.NoRenewal(), fencelock.TTL(time.Minute)))
			heard.take()
			if left := time.Until(l.Deadline()); left < 59*time.Second || left > time.Minute {
				t.Errorf("after %v in line %v are left", waits, left)
			}
			time.Sleep(50 * time.Second)
			w.wantEvents(&heard, "at risk")
			ok(t, l.Renew(bg))
			renewed := time.Now()
			w.store.taken()
			<-l.Context().Done()
			if d := time.Since(renewed); d < 59*time.Second || d > time.Minute {
				t.Errorf("it ended %v after Renew", d)
			}
			w.is(context.Cause(l.Context()), fencelock.ErrExpired)
			w.not(l.Err(), fencelock.ErrMaxHold)
			if steps := w.store.taken(); slices.Contains(steps, "renew") {
				t.Errorf("steps %q", steps)
			}
		})
	}
}

// A lease is renewed after a third of it, and that is tried for another third.
func TestRenewalIsTimedByTheTTL(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: time.Minute})
		w.lock(c, "k")
		w.store.taken()
		time.Sleep(101 * time.Second)
		steps.Same(t, "renewals in 101 s", len(w.store.taken()), 5)
		var took atomic.Int64
		w.store.meddle(func(ctx context.Context, _ string) error {
			sent := time.Now()
			<-ctx.Done()
			took.CompareAndSwap(0, int64(time.Since(sent)))
			return ctx.Err()
		}, nil)
		time.Sleep(40 * time.Second)
		w.store.heal()
		steps.Same(t, "a renewal was tried for", time.Duration(took.Load()), 20*time.Second)
	})
}

type ctxKey struct{}

// Every event says whose call it is about, of which kind, and with how many permits.
func TestEventsCarryTheCall(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard listener
		c := w.client(&fencelock.Options{TTL: 30 * time.Second, OnEvent: heard.on})
		ctx := context.WithValue(bg, ctxKey{}, "mine")
		calls := map[string]func() (*fencelock.Lease, error){
			"exclusive": func() (*fencelock.Lease, error) { return c.Lock(ctx, "k") },
			"shared":    func() (*fencelock.Lease, error) { return c.RLock(ctx, "k") },
			"permits":   func() (*fencelock.Lease, error) { return c.Acquire(ctx, "k", 3, 5) },
		}
		for kind, lock := range calls {
			l := w.got(lock())
			time.Sleep(11 * time.Second) // renewed
			w.is(errOf(c.Acquire(ctx, "k", 3, 0)), fencelock.ErrInvalid)
			w.release(l)
			for i, e := range w.wantEvents(&heard, "acquired", "renewed", "refused", "released") {
				if refused := i == 2; e.Context == nil || e.Context.Value(ctxKey{}) != "mine" ||
					!refused && (e.Kind != kind || (e.Permits == 3) != (kind == "permits")) {
					t.Errorf("%v: event %d is %+v", kind, i, e)
				}
			}
		}
	})
}

// A loss is told once, also if f returns it itself.
func TestLossIsToldOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		for _, f := range []func(ctx context.Context) error{
			func(ctx context.Context) error { return context.Cause(ctx) },
			func(ctx context.Context) error { return nil },
			func(ctx context.Context) error { return errors.New("half done") },
		} {
			var cause error
			err := c.Do(bg, "k", func(ctx context.Context, l *fencelock.Lease) error {
				ok(t, c.Break(bg, "k", l.Token(), fencelock.Break{Reason: "why"}))
				cause = l.Err()
				return f(ctx)
			})
			w.is(err, fencelock.ErrBroken, cause)
			if text := err.Error(); len(text) > 2*len(cause.Error()) || slices.Contains([]byte(text), '\n') {
				t.Errorf("the error is %q", text)
			}
		}
	})
}
