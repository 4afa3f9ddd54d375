package fencelock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// Without Reentrant, every way of asking for what ctx holds already is found out
// at once, and asks nothing of the store.
func TestLockingWhatContextHoldsIsADeadlock(t *testing.T) {
	type tag struct{}
	inWorld(t, func(w *world) {
		c := w.client(nil)
		mutex := w.lock(c, "m").Context()
		reader := w.got(c.RLock(bg, "r")).Context()
		permit := w.got(c.Acquire(bg, "s", 2, 5)).Context()
		deep := context.WithValue(w.lock(c, "other").Context(), tag{}, 1)
		mutexDeep := fencelock.Held(mutex, "m").Context()
		w.store.taken()
		start := time.Now()
		for name, err := range map[string]error{
			"Lock under Lock":             errOf(c.Lock(mutex, "m")),
			"TryLock under Lock":          errOf(c.TryLock(mutex, "m")),
			"RLock under Lock":            errOf(c.RLock(mutex, "m")),
			"NoRenewal under Lock":        errOf(c.Lock(mutex, "m", fencelock.NoRenewal())),
			"Lock under RLock, reentrant": errOf(c.Lock(reader, "r", fencelock.Reentrant())),
			"RLock under RLock":           errOf(c.RLock(reader, "r")),
			"Acquire in Acquire":          errOf(c.Acquire(permit, "s", 1, 5)),
			"more permits, reentrant":     errOf(c.Acquire(permit, "s", 3, 5, fencelock.Reentrant())),
			"Do in Do":                    c.Do(mutexDeep, "m", neverRuns(t)),
			"Once under Lock":             errOf(c.Once(mutex, "m", time.Time{}, neverRuns(t))),
			"through another lease":       errOf(c.Lock(deep, "other")),
		} {
			steps.Is(t, name, err, fencelock.ErrDeadlock)
			w.not(err, fencelock.ErrNotAcquired)
		}
		took(t, start, 0)
		w.steps()
		for _, ctx := range []context.Context{mutex, reader, permit, deep} {
			for _, k := range []string{"m", "r", "s", "other"} {
				if l := fencelock.Held(ctx, k); l != nil {
					w.release(l)
				}
			}
		}
	})
}

// n handles need n releases, in any order; others are refused throughout.
func TestReentrantHandlesInEveryOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		runInWorld(t, fmt.Sprint(order), func(t *testing.T, w *world) {
			var heard listener
			c := w.client(&fencelock.Options{OnEvent: heard.on})
			h := []*fencelock.Lease{w.lock(c, "k")}
			for i := range 2 {
				h = append(h, w.got(c.Lock(h[i].Context(), "k", fencelock.Reentrant())))
			}
			if h[0] == h[1] || h[1] == h[2] || h[0].Token() != h[1].Token() || h[1].Token() != h[2].Token() {
				t.Error("want new handles on the same grant")
			}
			w.steps("enter")
			for n, i := range order {
				w.taken("k")
				for range 3 { // one release of each, however often it is called
					w.release(h[i])
				}
				w.is(h[i].Err(), fencelock.ErrReleased)
				w.is(context.Cause(h[i].Context()), fencelock.ErrReleased)
				for _, j := range order[n+1:] {
					steps.Well(t, fmt.Sprintf("handle %d, after the release of handle %d", j, i), h[j].Err())
				}
				if n < 2 {
					w.steps()
				}
			}
			w.steps("leave")
			w.wantEvents(&heard, "acquired", "released")
			w.free("k")
		})
	}
}

func TestReentrantReadUnderAWriteSharesIt(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k")
		r := w.got(c.RLock(l.Context(), "k", fencelock.Reentrant()))
		try := w.got(c.TryLock(l.Context(), "k", fencelock.Reentrant()))
		p := w.got(c.Acquire(bg, "s", 3, 5))
		q := w.got(c.Acquire(p.Context(), "s", 2, 5, fencelock.Reentrant()))
		if r.Token() != l.Token() || try.Token() != l.Token() || q.Token() != p.Token() {
			t.Error("not shared")
		}
		for _, h := range []*fencelock.Lease{l, p, try} {
			w.release(h)
		}
		w.taken("k")
		w.release(r)
		w.free("k")
		line := w.line(c, "s")
		if len(line.Claims) != 1 || line.Claims[0].Permits != 3 {
			t.Errorf("%+v", line)
		}
		w.release(q)
	})
}

// The context carries the grant, not the claim: once the grant is over, it shares
// nothing, whoever has the key now, and even if that one has the very same claim.
func TestContextOfAReleasedGrantSharesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l1 := w.lock(c, "k")
		old := context.WithoutCancel(l1.Context())
		k := w.later(c, "k")
		w.release(l1) // handed to k with the claim
		l2 := w.got(k.wait())
		w.steps("enter")

		_, err := c.Lock(old, "k", fencelock.Reentrant(), fencelock.Wait(time.Second))
		w.held(err) // neither shared nor a deadlock: it waits like a stranger
		w.held(errOf(c.TryLock(old, "k")))
		steps.Same(t, "Held still finds", fencelock.Held(old, "k"), nil)
		w.release(l2)
		l3 := w.got(c.Lock(old, "k", fencelock.Reentrant()))
		steps.Rises(t, l2.Token(), l3.Token())
		w.release(l3)
	})
}

// A share learns of the loss of its grant in the step of the loss, also after the lease that it
// shares was released, and under a ctx that ends with no lease.
func TestShareEndsInTheStepThatEndsItsGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		outer := w.lock(c, "k")
		ctx := context.WithoutCancel(outer.Context())
		var shares []*fencelock.Lease
		for range 4 {
			shares = append(shares, w.got(c.Lock(ctx, "k", fencelock.Reentrant())))
		}
		done := shares[3].Context().Done()
		w.release(outer)
		w.is(c.Break(bg, "k", outer.Token(), fencelock.Break{Reason: "enough"}), nil)
		w.is(shares[0].Err(), fencelock.ErrBroken)
		w.is(shares[1].Context().Err(), context.Canceled)
		w.is(context.Cause(shares[2].Context()), fencelock.ErrBroken)
		<-done
		for _, l := range shares {
			w.is(context.Cause(l.Context()), fencelock.ErrBroken)
			w.is(l.Release(bg), fencelock.ErrBroken)
		}
		w.is(outer.Err(), fencelock.ErrReleased)
		w.release(outer) // its result stays
	})
}

func TestInnerTimesWithReentrantAreInvalid(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k")
		for _, o := range []fencelock.Option{
			fencelock.TTL(time.Minute), fencelock.MaxHold(time.Minute), fencelock.MinHold(time.Second), fencelock.NoRenewal(),
		} {
			w.is(errOf(c.Lock(l.Context(), "k", fencelock.Reentrant(), o)), fencelock.ErrInvalid)
			w.is(errOf(c.Lock(l.Context(), "k", o, fencelock.Reentrant())), fencelock.ErrInvalid)
		}
		h := w.got(c.Lock(l.Context(), "k", fencelock.Reentrant(), fencelock.Wait(time.Second), fencelock.Note("n")))
		w.release(h)
		w.release(l)
	})
}

// Another Client is like another process: no deadlock can be seen, and nothing is shared.
func TestAnotherClientIsNoDeadlockAndSharesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "k")
		k := w.begin(func() (*fencelock.Lease, error) { return b.Lock(l.Context(), "k", fencelock.Reentrant()) })
		steps.Same(t, "the call has ended", k.over(), false)
		w.held(errOf(b.TryLock(l.Context(), "k")))
		ctx := context.WithoutCancel(l.Context())
		w.release(l) // which ends the waiting one's ctx
		w.is(errOf(k.wait()), context.Canceled, fencelock.ErrNotAcquired, fencelock.ErrReleased)
		w.release(w.got(b.Lock(ctx, "k")))
	})
}

func TestWithoutHoldsQueuesLikeAStranger(t *testing.T) {
	type tag struct{}
	inWorld(t, func(w *world) {
		c := w.client(nil)
		base, cancel := context.WithCancel(context.WithValue(bg, tag{}, 1))
		l := w.got(c.Lock(base, "k"))
		ctx := fencelock.WithoutHolds(l.Context())
		if fencelock.Held(ctx, "k") != nil || ctx.Value(tag{}) != 1 {
			t.Error("it should carry everything but the holds")
		}
		w.held(errOf(c.Lock(ctx, "k", fencelock.Wait(time.Second))))
		w.held(errOf(c.Lock(ctx, "k", fencelock.Wait(time.Second), fencelock.Reentrant())))
		_, err := c.LockAll(ctx, []string{"a"}) // "a" sorts before "k"; to a stranger that is no matter
		ok(t, err)
		inner := w.got(c.Lock(ctx, "j"))
		if fencelock.Held(inner.Context(), "k") != nil || fencelock.Held(inner.Context(), "j") != inner {
			t.Error("holds taken later are carried, those before are not")
		}
		cancel()
		w.is(ctx.Err(), context.Canceled)
		w.release(inner)
		w.release(l)
	})
}

func TestHeldFindsTheInnermostLease(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		steps.Same(t, "an empty ctx holds", fencelock.Held(bg, "k"), nil)
		a := w.lock(c, "a")
		b := w.got(c.Lock(a.Context(), "b"))
		in := w.got(c.Lock(b.Context(), "a", fencelock.Reentrant()))
		ctx := in.Context()
		if fencelock.Held(ctx, "a") != in || fencelock.Held(ctx, "b") != b || fencelock.Held(ctx, "c") != nil {
			t.Error("wrong leases")
		}
		steps.Same(t, "b's context holds", fencelock.Held(b.Context(), "a"), a)
		w.release(in)
		steps.Same(t, "after the release of the inner one, ctx holds", fencelock.Held(ctx, "a"), a)
		w.release(b)
		w.release(a)
		for _, k := range []string{"a", "b"} {
			steps.Same(t, "it still holds", fencelock.Held(ctx, k), nil)
		}
	})
}

// A lease that ran out while nobody looked is not shared by the next call.
func TestExpiredLeaseIsNotShared(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, opts := range [][]fencelock.Option{
			{fencelock.NoRenewal(), fencelock.TTL(10 * time.Second)},
			{fencelock.MaxHold(10 * time.Second)},
		} {
			c := w.client(nil)
			l := w.lock(c, "k", opts...)
			ctx := context.WithoutCancel(l.Context())
			time.Sleep(10 * time.Second)
			k := w.begin(func() (*fencelock.Lease, error) { return c.Lock(ctx, "k", fencelock.Reentrant()) })
			next := w.got(k.wait())
			steps.Rises(t, l.Token(), next.Token())
			w.release(next)
		}
	})
}
