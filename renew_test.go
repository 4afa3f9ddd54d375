package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// Renewals of one length of lease hang; those of another go on.
func TestSlowRenewalDoesNotHoldUpOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.brief()
		w.store.meddle(only(func(ctx context.Context, step string) error {
			if requestOf(ctx).tickets[0].Key == "slow" {
				return silent(ctx, step)
			}
			return nil
		}, "renew"), nil)
		slow, fine := w.lock(c, "slow", fencelock.TTL(30*time.Second)), w.lock(c, "fine")
		time.Sleep(time.Minute)
		w.is(slow.Err(), fencelock.ErrExpired)
		ok(t, fine.Err())
		w.release(fine)
	})
}

func TestManyLeasesAreRenewedInFewCalls(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 3000
		c := w.brief()
		w.store.meddle(only(takes(time.Second), "renew"), nil)
		leases := make([]*fencelock.Lease, n)
		for i := range leases {
			leases[i] = w.lock(c, fmt.Sprint("k", i))
			if i%100 == 0 {
				time.Sleep(50 * time.Millisecond)
			}
		}
		before := w.store.count("renew")
		time.Sleep(10 * ttl)
		calls := w.store.count("renew") - before
		renewed := 30 * n // every ttl/3
		if calls > renewed/100 {
			t.Errorf("%d calls for about %d renewals; want at most one in a hundred", calls, renewed)
		}
		for _, l := range leases {
			must(t, l.Err())
			w.release(l)
		}
	})
}

// The release comes while a renewal is on its way. It lets the next one in at once,
// but it returns when the renewal has come back.
//
//verify:fault The API, on all stores | a renewal races Release, ten thousand times
func TestNoRenewalIsOnItsWayAfterRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		var sending atomic.Bool
		w.store.meddle(only(func(context.Context, string) error {
			sending.Store(true)
			time.Sleep(time.Second)
			sending.Store(false)
			return nil
		}, "renew"), nil)
		l := w.lock(w.brief(), "k")
		time.Sleep(ttl/3 + 100*time.Millisecond)
		steps.Same(t, "the schedule of this test holds", sending.Load(), true)
		w.release(l)
		steps.Same(t, "a renewal is on its way after Release has returned", sending.Load(), false)
		n := w.store.count("renew")
		time.Sleep(3 * ttl)
		steps.Same(t, "a released lease is renewed", w.store.count("renew"), n)
	})
}

// The renewal by hand, the renewal by the clock and the release of one lease, all
// at once. Whatever happens, Release succeeds while the lease lasts, and nothing is left.
//
//verify:fault The API, on all stores | a renewal races Release, ten thousand times
func TestRenewalRacesRelease(t *testing.T) {
	s := memlock.New()
	c := testclient.New(t, s, &fencelock.Options{TTL: 20 * time.Millisecond, HandOff: 1})
	ctx := context.Background()
	for range 10000 {
		l, err := c.Lock(ctx, "k")
		must(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := l.Renew(ctx); err != nil && !errors.Is(err, fencelock.ErrReleased) && !errors.Is(err, fencelock.ErrLost) {
				t.Error(err)
			}
		}()
		switch err := l.Release(ctx); {
		case err == nil, errors.Is(err, fencelock.ErrExpired):
		case errors.Is(err, fencelock.ErrUnavailable) && time.Now().After(l.Deadline()):
			// A busy machine puts Release aside for the rest of the lease, which is how long it tries.
		default:
			t.Fatal(err)
		}
		<-done
	}
	c.Close()
	wantEmpty(t, s)
}

// The holding was ended by MaxHold long before the store's lease. The key stays taken
// until its holder has surely looked; its Release says that it has.
func TestReleaseOfALostLeaseLetsTheNextInAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		o := &fencelock.Options{TTL: time.Minute}
		c, other := w.mute(o), w.mute(o)
		l := w.lock(c, "k", fencelock.MaxHold(5*time.Second))
		in := w.got(c.Lock(l.Context(), "k", fencelock.Reentrant()))
		next := w.later(other, "k")
		<-l.Context().Done()
		w.is(l.Release(bg), fencelock.ErrMaxHold)
		time.Sleep(time.Second)
		if next.over() {
			t.Fatal("granted while a handle of the lost grant was not released yet")
		}
		begin := time.Now()
		w.is(in.Release(bg), fencelock.ErrMaxHold)
		x := w.got(next.wait())
		tookAtMost(t, begin, time.Second)
		w.release(x)
	})
}

func TestCloseWithManyLeasesSendsFewLeavesAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.brief()
		var now, most atomic.Int32
		w.store.meddle(only(func(context.Context, string) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			time.Sleep(time.Millisecond)
			return nil
		}, "leave"), nil)
		for i := range 300 {
			w.lock(c, fmt.Sprint("k", i))
		}
		c.Close()
		if most.Load() > 256 {
			t.Errorf("%d Leaves at once", most.Load())
		}
	})
}

// soonOver is a context whose deadline passes a moment before it ends, as with all of them.
type soonOver struct {
	context.Context
	end time.Time
}

func (c soonOver) Deadline() (time.Time, bool) { return c.end, true }

// TestRenewThatRunsOutOfTimeSaysNothingOfTheStore: a connection has the deadline of the call
// too, and may see it first.
func TestRenewThatRunsOutOfTimeSaysNothingOfTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		heard := listener{only: []fencelock.EventType{fencelock.EventAtRisk}}
		l := w.lock(w.mute(&fencelock.Options{TTL: ttl, OnEvent: heard.on}), "k")
		w.store.meddle(only(func(ctx context.Context, _ string) error {
			time.Sleep(time.Millisecond)
			return driverutil.Ended(ctx)
		}, "renew"), nil)
		if err := l.Renew(soonOver{bg, time.Now().Add(time.Millisecond)}); err == nil {
			t.Error("the schedule of this test no longer holds: Renew succeeded")
		}
		w.store.heal()
		w.wantEvents(&heard) // the lease is not at risk
		w.release(l)
	})
}

// All are due in the same moment, and more than may be on their way together. A tick that takes
// up again what it has just put off would never end.
func TestMoreLeasesThanGoOutAtOnceAreRenewed(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.brief()
		w.store.meddle(only(takes(50*time.Millisecond), "renew"), nil)
		var leases []*fencelock.Lease
		for i := range 40000 {
			leases = append(leases, w.lock(c, fmt.Sprint(i)))
		}
		time.Sleep(3 * ttl)
		for _, l := range leases {
			if err := l.Err(); err != nil {
				t.Fatalf("%s: %v", l.Key(), err)
			}
		}
	})
}
