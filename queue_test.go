package fencelock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// TestEnterThatFollowsALeave: others in line hear of a Leave sooner if no Enter of ours is before
// it. Where nobody else is in line, both go out at once, which makes a hot key quick.
func TestEnterThatFollowsALeave(t *testing.T) {
	for name, contended := range map[string]bool{"others are in line": true, "nobody else is": false} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			b, here := w.apart(&fencelock.Options{TTL: ttl, HandOff: 2})
			there := w.brief()
			before, during := 0, -1
			b.meddle(only(atFirst(func(context.Context, string) error {
				synctest.Wait() // the store takes its time
				during = len(b.entered()) - before
				return nil
			}), "leave"), nil)
			holder, want := here, 1
			if contended {
				holder, want = there, 0
			}
			first := w.lock(holder, "k")
			var group sync.WaitGroup
			for range 3 { // the last has to ask the store again
				group.Go(func() { w.release(w.lock(here, "k")) })
				synctest.Wait()
			}
			before = len(b.entered())
			w.release(first)
			group.Wait()
			steps.Same(t, "Enters were sent before the Leave had arrived", during, want)
		})
	}
}

// TestHangingLeaveDelaysTheNextGoroutineBriefly: the next goroutine of the local queue waits for it, but
// no longer than Release does.
func TestHangingLeaveDelaysTheNextGoroutineBriefly(t *testing.T) {
	inWorld(t, func(w *world) {
		b, here := w.apart(&fencelock.Options{TTL: ttl, HandOff: 2})
		hung := false
		b.meddle(only(atFirst(func(ctx context.Context, step string) error {
			hung = true
			return silent(ctx, step)
		}), "leave"), nil)
		first := w.lock(w.brief(), "k")
		began := time.Now()
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				l := w.lock(here, "k")
				tookAtMost(t, began, ttl)
				_ = l.Release(bg) // the one that hangs is done behind
			})
			synctest.Wait()
		}
		w.release(first)
		group.Wait()
		steps.Same(t, "a Leave hung", hung, true)
	})
}

// A process that comes among twenty goroutines here waits for at most HandOff grants.
func TestHandOffEndsSoThatOthersGetTheirTurn(t *testing.T) {
	inWorld(t, func(w *world) {
		here, there := w.mute(&fencelock.Options{TTL: ttl, HandOff: 4}), w.brief()
		held := w.lock(here, "k")
		var calls []*call
		var other *call
		for i := range 20 {
			if i == 10 {
				other = w.later(there, "k")
			}
			calls = append(calls, w.later(here, "k"))
		}
		w.release(held)
		for i, k := range calls {
			if other != nil && other.over() {
				w.release(w.got(other.wait()))
				other = nil
			} else if i > 3 && other != nil {
				t.Fatalf("the other process waits after %d grants here; HandOff is 4", i+1)
			}
			w.release(w.got(k.wait()))
		}
	})
}

// Each goroutine holds for 4 s, which is less than half of a lease, so the claim
// stays healthy: only its age ends the chain.
func TestHandOffEndsWithTheAgeOfOneLease(t *testing.T) {
	inWorld(t, func(w *world) {
		here, there := w.brief(), w.brief()
		begin := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				l := w.lock(here, "k")
				time.Sleep(4 * time.Second)
				w.release(l)
			})
			synctest.Wait()
		}
		l := w.lock(there, "k")
		tookAtMost(t, begin, ttl+4*time.Second)
		w.release(l)
		wg.Wait()
	})
}

// Renewals fail, and more than half of the lease has passed: a goroutine that got
// this claim would begin with a lease that is about to end.
func TestUnhealthyLeaseIsNotHandedOn(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.brief()
		w.store.meddle(only(down, "renew"), nil)
		l := w.lock(c, "k")
		k := w.later(c, "k")
		time.Sleep(6 * time.Second)
		w.release(l)
		l2 := w.got(k.wait())
		w.has(l2, ttl*9/10)
		steps.Same(t, "Enters", len(w.store.entered()), 2)
		w.release(l2)
	})
}

// The front of our queue gives up. The place in the store's line belongs to the
// process: the next goroutine here is served before the process that came later.
func TestFrontThatGivesUpKeepsTheClaimInLine(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.brief(), "k")
		b, here := w.apart(nil)
		ctx, cancel := context.WithCancel(bg)
		front := w.begin(func() (*fencelock.Lease, error) { return here.Lock(ctx, "k") })
		next, other := w.later(here, "k"), w.later(w.brief(), "k")
		cancel()
		w.is(errOf(front.wait()), fencelock.ErrNotAcquired, context.Canceled)
		w.release(l)
		l = w.got(next.wait())
		if other.over() {
			t.Fatal("two holders")
		}
		steps.Same(t, "Enters; the place was given up", len(b.entered()), 1)
		w.release(l)
		w.release(w.got(other.wait()))
	})
}

// A holder never releases. Its lease ends, and the next goroutine of its process gets the key.
func TestLossWakesTheLocalQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.brief()
		w.store.meddle(only(func(context.Context, string) error {
			if len(w.store.entered()) == 1 {
				return errDown
			}
			return nil
		}, "renew"), nil)
		l := w.lock(c, "k")
		begin := time.Now()
		l2 := w.lock(c, "k")
		if got := time.Since(begin); got < ttl-ttl/50 || got > ttl+time.Second {
			t.Errorf("granted %v after a lease of %v that nobody renewed", got, ttl)
		}
		w.is(l.Err(), fencelock.ErrExpired)
		steps.Rises(t, l.Token(), l2.Token())
		w.release(l2)
	})
}

// A try meets a call whose Enter has no answer yet. If that call fails, nobody has
// the lock: a refusal would have been a lie.
func TestTryWaitsForTheFrontsFirstAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.brief()
		w.store.meddle(only(atFirst(silent), "enter"), nil)
		ctx, cancel := context.WithCancel(bg)
		front := w.begin(func() (*fencelock.Lease, error) { return c.Lock(ctx, "k") })
		try := w.begin(func() (*fencelock.Lease, error) { return c.TryLock(bg, "k") })
		cancel()
		w.release(w.got(try.wait()))
		w.is(errOf(front.wait()), context.Canceled)
	})
}

func TestStrictOrderWithoutHandOff(t *testing.T) {
	inWorld(t, func(w *world) {
		o := &fencelock.Options{TTL: ttl, HandOff: 1}
		a, b := w.mute(o), w.mute(o)
		held := w.lock(a, "k")
		var calls []*call
		for i := range 20 {
			calls = append(calls, w.later([]*fencelock.Client{b, a, a}[i%3], "k"))
		}
		for i, k := range calls {
			w.release(held)
			held = w.got(k.wait())
			if i+1 < len(calls) && calls[i+1].over() {
				t.Fatalf("call %d is granted beside call %d", i+1, i)
			}
		}
		w.release(held)
	})
}

//verify:fault The API, on all stores | ten thousand waiters on a key, all cancelled
func TestTenThousandWaitersCancelled(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.brief()
		l := w.lock(c, "k")
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for range 10000 {
			wg.Go(func() { w.is(errOf(c.Lock(ctx, "k")), context.Canceled) })
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		w.release(l)
		steps.Same(t, "Enters", len(w.store.entered()), 1)
	})
}
