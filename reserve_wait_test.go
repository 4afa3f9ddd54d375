package fencelock_test

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

// TestOthersWaitNoLongerForAClaimThatIsLengthened: another process waits for 2×HandOff grants, or
// those of four answers of the store, at most 8×HandOff, and for one lease at most.
func TestOthersWaitNoLongerForAClaimThatIsLengthened(t *testing.T) {
	const handOff = 16
	for name, o := range map[string]struct {
		hold, answer time.Duration
		then         time.Duration // hold, when the other has come
		grants       int32
		time         time.Duration
	}{
		"a store that is quick": {hold: 10 * time.Microsecond, answer: time.Microsecond, grants: 2 * handOff},
		"a store that is slow":  {hold: 10 * time.Microsecond, answer: 150 * time.Microsecond, grants: 4 * 150 / 10},
		"a store at the limit":  {hold: 10 * time.Microsecond, answer: 500 * time.Microsecond, grants: 8 * handOff},
		"grants that take long": {hold: ttl / 8, grants: 2 * handOff, time: ttl + ttl/8},
		"grants that took long": {hold: ttl / 4, then: time.Microsecond, grants: 2 * handOff},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			here, there := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: handOff}), w.brief()
			var group sync.WaitGroup
			var end atomic.Bool
			var grants atomic.Int32
			var hold atomic.Int64
			hold.Store(int64(o.hold))
			var came time.Time
			waited := int32(0)
			w.store.meddle(nil, only(func(context.Context, string) error {
				if came.IsZero() && grants.Load() > 0 && (w.store.count("reserve") > 20 || o.time > 0) {
					came = time.Now()
					before := grants.Load()
					hold.Store(int64(cmp.Or(o.then, o.hold)))
					group.Go(func() {
						l := w.lock(there, "k")
						waited = grants.Load() - before
						if d := time.Since(came); o.time > 0 && d > o.time {
							t.Errorf("the other process waited for %v; want at most %v", d, o.time)
						}
						end.Store(true)
						w.release(l)
					})
				}
				time.Sleep(o.answer)
				return nil
			}, "reserve"))
			take := func() {
				for !end.Load() {
					l := w.lock(here, "k")
					grants.Add(1)
					time.Sleep(time.Duration(hold.Load()))
					w.release(l)
				}
			}
			for range 20 {
				group.Go(take)
			}
			group.Wait()
			// Whoever had been granted the lock when the other came, may have counted that later.
			if came.IsZero() || waited > o.grants+1 {
				t.Errorf("%d grants passed before the other process had its turn; want at most %d", waited, o.grants)
			}
			t.Logf("%d grants passed", waited)
		})
	}
}

// TestHotKeyNeverWaitsForTheStore: tokens are asked for so early that they are there when
// they are needed, but for the first few times, when nobody knows how long that takes.
func TestHotKeyNeverWaitsForTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		const grants, hold, answer = 2000, 10 * time.Microsecond, 150 * time.Microsecond
		c := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: 16})
		w.store.meddle(nil, only(takes(answer), "reserve"))
		began := time.Now()
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				for range grants / 20 {
					l := w.lock(c, "k")
					time.Sleep(hold)
					w.release(l)
				}
			})
		}
		group.Wait()
		if took := time.Since(began) - grants*hold; took > 4*answer {
			t.Errorf("%d grants of %v each took %v longer than they last: the store answers within %v", grants, hold, took, answer)
		}
	})
}

// TestClaimThatIsLengthenedIsYoungAgain: the store has said that nobody else is in line.
func TestClaimThatIsLengthenedIsYoungAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: 4})
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 10 {
					l := w.lock(c, "k")
					time.Sleep(ttl / 3)
					w.release(l)
				}
			})
		}
		group.Wait()
		if n := len(w.store.entered()); n > 40/6 {
			t.Errorf("%d claims for 40 grants, each of a third of a lease; want a claim for six grants at least", n)
		}
	})
}

// TestTryDuringAReserve waits for the answer, and is refused by whoever gets the lock.
func TestTryDuringAReserve(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: 2})
		w.store.meddle(nil, only(takes(ttl/10), "reserve"))
		last := w.lastOfItsClaim(c)
		next := w.later(c, "k")
		w.release(last)
		began := time.Now()
		w.held(errOf(c.TryLock(bg, "k")))
		took(t, began, ttl/10)
		w.release(w.got(next.wait()))
	})
}

// TestReserveThatHangsHoldsOthersUpForALeaseAtMost: nobody has the lock while the store is
// asked for more tokens, and others must not wait for an answer that does not come.
func TestReserveThatHangsHoldsOthersUpForALeaseAtMost(t *testing.T) {
	for _, lease := range []time.Duration{100 * time.Millisecond, time.Second, 15 * time.Second} {
		inWorld(t, func(w *world) {
			here := w.lengthens(&fencelock.Options{TTL: lease, HandOff: 2})
			there := w.mute(&fencelock.Options{TTL: lease})
			w.store.meddle(only(silent, "reserve"), nil)
			last := w.lastOfItsClaim(here)
			next := w.later(here, "k")
			began := time.Now()
			w.release(last)
			l := w.lock(there, "k")
			tookAtMost(t, began, lease/2)
			w.release(l)
			w.release(w.got(next.wait()))
		})
	}
}
