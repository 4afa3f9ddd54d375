package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// The values of ctx reach the driver, for tracing. Its end does not: the lock is released.
//
//verify:fault The API, on all stores | Release with a cancelled context, twice, after expiry with a successor
func TestReleaseLendsTheValuesOfItsContext(t *testing.T) {
	type tag struct{}
	inWorld(t, func(w *world) {
		l := w.lock(w.client(nil), "k")
		seen := false
		w.store.meddle(only(func(ctx context.Context, _ string) error {
			seen = ctx.Value(tag{}) == "trace"
			steps.Well(t, "the call is over before it began", ctx.Err())
			return nil
		}, "leave"), nil)
		ctx, cancel := context.WithCancel(context.WithValue(bg, tag{}, "trace"))
		cancel()
		if err := l.Release(ctx); err != nil || !seen {
			t.Error(err, seen)
		}
	})
}

//verify:fault The API, on all stores | Release with a cancelled context, twice, after expiry with a successor
func TestEveryReleaseReturnsTheFirstResult(t *testing.T) {
	for name, c := range map[string]struct {
		before func(w *world, l *fencelock.Lease)
		is     error
	}{
		"released":    {func(*world, *fencelock.Lease) {}, nil},
		"unconfirmed": {func(w *world, _ *fencelock.Lease) { w.store.meddle(only(down, "leave"), nil) }, fencelock.ErrUnavailable},
		"expired": {func(w *world, l *fencelock.Lease) {
			w.store.meddle(only(down, "renew"), nil)
			<-l.Context().Done()
		}, fencelock.ErrExpired},
		"gone from the store": {func(w *world, _ *fencelock.Lease) { w.store.Flush() }, fencelock.ErrLost},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			l := w.lock(w.client(nil), "k")
			c.before(w, l)
			first := l.Release(bg)
			w.is(first, c.is)
			w.store.heal()
			time.Sleep(time.Minute)
			w.store.taken()
			for range 3 {
				steps.Same(t, "a second Release", l.Release(bg), first)
			}
			w.steps()
		})
	}
}

func TestConcurrentReleasesAreOne(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.client(nil), "k")
		w.store.taken()
		w.store.meddle(only(takes(100*time.Millisecond), "leave"), nil)
		var wg sync.WaitGroup
		start := time.Now()
		for range 10 {
			wg.Go(func() {
				ok(t, l.Release(bg))
				// None of them returns before the key is free.
				if d := time.Since(start); d < 100*time.Millisecond {
					t.Errorf("returned after %v", d)
				}
			})
		}
		wg.Wait()
		w.steps("leave")
	})
}

// A's lease runs out, B gets the lock, A releases. B must not notice.
//
//verify:fault The API, on all stores | Release with a cancelled context, twice, after expiry with a successor
func TestReleaseAfterExpiryLeavesTheSuccessorAlone(t *testing.T) {
	for name, fault := range faults {
		runInWorld(t, name, func(t *testing.T, w *world) {
			a := w.client(&fencelock.Options{TTL: 10 * time.Second, Owner: "a"})
			b := w.client(&fencelock.Options{TTL: 10 * time.Second, Owner: "b"})
			l := w.lock(a, "k")
			w.store.meddle(only(fault, "renew"), nil)
			k := w.later(b, "k")
			time.Sleep(9 * time.Second)
			if k.over() || l.Err() != nil {
				t.Fatal("ended too early")
			}
			time.Sleep(1500 * time.Millisecond)
			w.store.heal()
			next := w.got(k.wait())
			steps.Rises(t, l.Token(), next.Token())
			w.is(l.Err(), fencelock.ErrExpired, fencelock.ErrLost)
			w.is(l.Release(bg), fencelock.ErrExpired, fencelock.ErrLost)
			time.Sleep(time.Minute)
			if next.Err() != nil || next.Context().Err() != nil {
				t.Errorf("the successor lost it: %v", next.Err())
			}
			w.taken("k")
			w.release(next)
		})
	}
}

// Release returns after at least one attempt, and after 2 s or the time left of
// the lease at most; what is missing is done behind.
func TestReleaseIsBoundedAndGoesOnInTheBackground(t *testing.T) {
	for name, fault := range faults {
		for _, ttl := range []time.Duration{time.Second, 30 * time.Second} {
			runInWorld(t, name+"/"+ttl.String(), func(t *testing.T, w *world) {
				l := w.lock(w.client(&fencelock.Options{TTL: ttl}), "k")
				w.store.taken()
				w.store.meddle(only(fault, "leave"), nil)
				start, left := time.Now(), time.Until(l.Deadline())
				err := l.Release(bg)
				took := time.Since(start)
				w.is(err, fencelock.ErrUnavailable)
				w.not(err, fencelock.ErrLost)
				if most := min(left, 2*time.Second); took > most+time.Millisecond {
					t.Errorf("took %v, want at most %v", took, most)
				}
				steps.Same(t, "no attempt was made", len(w.store.taken()) == 0, false)
				w.store.heal()
				time.Sleep(5 * time.Second)
				w.free("k")
			})
		}
	}
}

// The process was paused on the way to the store until the lease had run out: nobody broke it.
func TestReleaseThatComesTooLateIsAnExpiry(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.client(&fencelock.Options{TTL: time.Second}), "k")
		w.store.meddle(only(func(context.Context, string) error { time.Sleep(time.Second); return driver.GoneError{} }, "leave"), nil)
		err := l.Release(bg)
		w.is(err, fencelock.ErrExpired, fencelock.ErrLost)
		w.not(err, fencelock.ErrBroken)
	})
}

// A renewal that hangs is no reason to keep the one who releases.
func TestReleaseIsBoundedAlsoWhileARenewalHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.client(&fencelock.Options{TTL: 30 * time.Second}), "k")
		w.store.meddle(only(silent, "renew", "leave"), nil)
		time.Sleep(10*time.Second + time.Millisecond) // a renewal is on its way
		start := time.Now()
		w.is(l.Release(bg), fencelock.ErrUnavailable)
		tookAtMost(t, start, 2*time.Second+time.Millisecond)
	})
}

// A call, or a renewal, finds that the store has lost the claim while everybody believed in it: whoever
// worked under it must hear that, and nothing enters again behind the holder's back.
func TestClaimThatIsGoneIsALoss(t *testing.T) {
	nop := func(context.Context, *fencelock.Lease) error { return nil }
	for name, call := range map[string]func(l *fencelock.Lease) error{
		"Release": func(l *fencelock.Lease) error { return l.Release(bg) },
		"Renew":   func(l *fencelock.Lease) error { return l.Renew(bg) },
		"Do":      func(l *fencelock.Lease) error { return l.Do(bg, nop) },
		"a renewal": func(l *fencelock.Lease) error {
			start := time.Now()
			<-l.Context().Done()
			tookAtMost(t, start, 11*time.Second) // a third of the lease, and a second
			return l.Release(bg)
		},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			l := w.lock(w.client(nil), "k")
			w.store.Flush()
			err := call(l)
			steps.Same(t, "Enters", len(w.store.entered()), 1)
			w.is(err, fencelock.ErrLost, fencelock.ErrBroken)
			w.not(err, fencelock.ErrUnavailable)
			w.is(l.Context().Err(), context.Canceled)
			if name == "Renew" {
				w.is(l.Err(), fencelock.ErrLost)
			}
			w.free("k")
		})
	}
}

// A lease without renewal has its whole TTL from the grant, also after a wait, and from each Renew.
func TestNoRenewal(t *testing.T) {
	for waits, ttl := range map[time.Duration]time.Duration{
		0: time.Minute, 17 * time.Second: time.Minute, 61 * time.Second: 10 * time.Second,
	} {
		runInWorld(t, fmt.Sprint(waits, " ", ttl), func(t *testing.T, w *world) {
			whole := func(what string, d time.Duration) {
				t.Helper()
				if d < ttl-ttl/60 || d > ttl {
					t.Errorf("%s %v; want %v", what, d, ttl)
				}
			}
			var heard listener
			other, c := w.client(nil), w.client(&fencelock.Options{OnEvent: heard.on})
			first := w.lock(other, "k")
			time.AfterFunc(waits, func() { w.release(first) })
			l := w.got(c.Lock(bg, "k", fencelock.NoRenewal(), fencelock.TTL(ttl)))
			heard.take()
			whole("in line it had", time.Until(l.Deadline()))
			time.Sleep(5 * ttl / 6)
			w.wantEvents(&heard, "at risk")
			ok(t, l.Renew(bg))
			renewed := time.Now()
			w.store.taken()
			<-l.Context().Done()
			whole("after Renew it had", time.Since(renewed))
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
				steps.Same(t, kind, e.Context.Value(ctxKey{}), any("mine"))
				switch {
				case e.Type == fencelock.EventRefused:
					w.is(e.Err, fencelock.ErrInvalid)
					steps.Same(t, "it took", e.Took, 0)
				case e.Kind != kind || (e.Permits == 3) != (kind == "permits"):
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
