package fencelock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
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
		"a store that is quick":  {hold: 10 * time.Microsecond, answer: time.Microsecond, grants: 2 * handOff},
		"a store that is slow":   {hold: 10 * time.Microsecond, answer: 150 * time.Microsecond, grants: 4 * 150 / 10},
		"a store at the limit":   {hold: 10 * time.Microsecond, answer: 500 * time.Microsecond, grants: 8 * handOff},
		"a store that is slower": {hold: 10 * time.Microsecond, answer: time.Millisecond, grants: 8 * handOff},
		"grants that take long":  {hold: ttl / 8, grants: 2 * handOff, time: ttl + ttl/8},
		"grants that took long":  {hold: ttl / 4, then: time.Microsecond, grants: 2 * handOff},
	} {
		runInBubble(t, name, func(t *testing.T, s *memlock.Store) {
			b := newReserveTap(s)
			here, there := client(t, b, &fencelock.Options{TTL: ttl, HandOff: handOff}), plain(t, s)
			var group sync.WaitGroup
			var end atomic.Bool
			var grants atomic.Int32
			var hold atomic.Int64
			hold.Store(int64(o.hold))
			var came time.Time
			waited := int32(0)
			b.reserve = func(_ context.Context, do func() (bool, error)) (bool, error) {
				done, err := do()
				if done && came.IsZero() && grants.Load() > 0 && (b.reserves > 20 || o.time > 0) {
					came = time.Now()
					before := grants.Load()
					hold.Store(int64(cmp.Or(o.then, o.hold)))
					group.Go(func() {
						l := mustLock(t, there, "k")
						waited = grants.Load() - before
						if d := time.Since(came); o.time > 0 && d > o.time {
							t.Errorf("the other process waited for %v; want at most %v", d, o.time)
						}
						end.Store(true)
						mustRelease(t, l)
					})
				}
				after(o.answer)
				return done, err
			}
			take := func() {
				for !end.Load() {
					l := mustLock(t, here, "k")
					grants.Add(1)
					after(time.Duration(hold.Load()))
					mustRelease(t, l)
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
	bubble(t, func(t *testing.T, s *memlock.Store) {
		const grants, hold, answer = 2000, 10 * time.Microsecond, 150 * time.Microsecond
		b := newReserveTap(s)
		b.reserve = slowly(answer)
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 16})
		began := time.Now()
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				for range grants / 20 {
					l := mustLock(t, c, "k")
					after(hold)
					mustRelease(t, l)
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
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newReserveTap(s)
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 4})
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 10 {
					l := mustLock(t, c, "k")
					after(ttl / 3)
					mustRelease(t, l)
				}
			})
		}
		group.Wait()
		if n := len(b.entered()); n > 40/6 {
			t.Errorf("%d claims for 40 grants, each of a third of a lease; want a claim for six grants at least", n)
		}
	})
}

// TestTryDuringAReserve waits for the answer, and is refused by whoever gets the lock.
func TestTryDuringAReserve(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newReserveTap(s)
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
		b.reserve = slowly(ttl / 10)
		last := lastOfItsClaim(t, c)
		var group sync.WaitGroup
		done := make(chan struct{})
		group.Go(func() {
			l := mustLock(t, c, "k")
			<-done
			mustRelease(t, l)
		})
		synctest.Wait()
		mustRelease(t, last)
		began := time.Now()
		if _, err := c.TryLock(t.Context(), "k"); !errors.As(err, new(*fencelock.HeldError)) {
			t.Errorf("TryLock beside a Reserve: %v; want a HeldError", err)
		}
		took(t, began, ttl/10)
		close(done)
		group.Wait()
	})
}

// TestReserveThatHangsHoldsOthersUpForALeaseAtMost: nobody has the lock while the store is
// asked for more tokens, and others must not wait for an answer that does not come.
func TestReserveThatHangsHoldsOthersUpForALeaseAtMost(t *testing.T) {
	for _, lease := range []time.Duration{100 * time.Millisecond, time.Second, 15 * time.Second} {
		bubble(t, func(t *testing.T, s *memlock.Store) {
			b := newReserveTap(s)
			here, there := client(t, b, &fencelock.Options{TTL: lease, HandOff: 2}), client(t, newTap(s), &fencelock.Options{TTL: lease})
			b.reserve = func(ctx context.Context, _ func() (bool, error)) (bool, error) {
				<-ctx.Done()
				return false, ctx.Err()
			}
			last := lastOfItsClaim(t, here)
			var group sync.WaitGroup
			group.Go(func() { mustRelease(t, mustLock(t, here, "k")) })
			synctest.Wait()
			began := time.Now()
			mustRelease(t, last)
			l := mustLock(t, there, "k")
			tookAtMost(t, began, lease/2)
			mustRelease(t, l)
			group.Wait()
		})
	}
}

// sleepy is a store whose Leave and whose answer to Reserve take a while. It has no mutex of
// its own, as a tap has: that would put in order what no store puts in order.
type sleepy struct {
	*memlock.Store
	d time.Duration
}

func (s *sleepy) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	after(s.d)
	return s.Store.Leave(context.WithoutCancel(ctx), t, e)
}

func (s *sleepy) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	done, err := s.Store.Reserve(ctx, t, span)
	after(s.d / 2)
	return done, err
}

// TestReserveIsAnsweredWhileItsClaimLeaves is for the race detector. More keys are used than
// queues are kept, so that the Reserve under way is forgotten.
func TestReserveIsAnsweredWhileItsClaimLeaves(t *testing.T) {
	b := &sleepy{memlock.New(), 50 * time.Millisecond}
	c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
	use := func(n int, meanwhile func()) {
		var ls []*fencelock.Lease
		for i := range n {
			ls = append(ls, mustLock(t, c, fmt.Sprint(i)))
		}
		meanwhile()
		var group sync.WaitGroup
		for _, l := range ls {
			group.Go(func() { mustRelease(t, l) })
		}
		group.Wait()
	}
	use(65, func() {})
	var first *fencelock.Lease
	use(64, func() { first = mustLock(t, c, "k") })
	second := lockLater(t, c)
	after(10 * time.Millisecond)
	mustRelease(t, first) // hands on, and the store is asked for tokens
	mustRelease(t, <-second)
	c.Close()
}
