package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

func TestSlowRenewalDoesNotHoldUpOthers(t *testing.T) {
	// Renewals of one length of lease hang; those of another go on.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			if ts[0].Key == "slow" {
				<-ctx.Done()
				return all(ts, ctx.Err())
			}
			return do()
		}
		slow := mustLock(t, c, "slow", fencelock.TTL(30*time.Second))
		fine := mustLock(t, c, "fine")
		after(time.Minute)
		if slow.Err() == nil {
			t.Error("the lease that was never renewed is believed after two of its lengths")
		}
		ok(t, fine.Err())
		mustRelease(t, fine)
		after(time.Minute)
	})
}

func TestManyLeasesAreRenewedInFewCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		const n = 3000
		b, c := tapped(t, s)
		inFlight := map[string]bool{}
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			b.mu.Lock()
			for _, k := range ts {
				if inFlight[k.ID] {
					t.Errorf("%s has two renewals on their way", k.Key)
				}
				inFlight[k.ID] = true
			}
			b.mu.Unlock()
			after(time.Second)
			b.mu.Lock()
			for _, k := range ts {
				delete(inFlight, k.ID)
			}
			b.mu.Unlock()
			return do()
		}
		leases := make([]*fencelock.Lease, n)
		for i := range leases {
			leases[i] = mustLock(t, c, fmt.Sprint("k", i))
			if i%100 == 0 {
				after(50 * time.Millisecond)
			}
		}
		before := b.renewals()
		after(10 * ttl)
		calls := b.renewals() - before
		renewed := 30 * n // every ttl/3
		if calls > renewed/100 {
			t.Errorf("%d calls for about %d renewals; want at most one in a hundred", calls, renewed)
		}
		for _, l := range leases {
			must(t, l.Err())
			mustRelease(t, l)
		}
	})
}

//verify:fault The API, on all stores | a renewal races Release, ten thousand times
func TestNoRenewalIsOnItsWayAfterRelease(t *testing.T) {
	// The release comes while a renewal is on its way. It lets the next one in at once,
	// but it returns when the renewal has come back.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		var sending atomic.Bool
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			sending.Store(true)
			after(time.Second)
			sending.Store(false)
			return do()
		}
		l := mustLock(t, c, "k")
		after(ttl/3 + 100*time.Millisecond)
		if !sending.Load() {
			t.Fatal("the schedule of this test no longer holds")
		}
		mustRelease(t, l)
		if sending.Load() {
			t.Error("a renewal is on its way after Release has returned")
		}
		n := b.renewals()
		after(3 * ttl)
		steps.Same(t, "a released lease is renewed", b.renewals(), n)
	})
}

//verify:fault The API, on all stores | a renewal races Release, ten thousand times
func TestRenewalRacesRelease(t *testing.T) {
	// The renewal by hand, the renewal by the clock and the release of one lease, all
	// at once. Whatever happens, Release succeeds while the lease lasts, and nothing is left.
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
			// A machine that is busy enough puts Release aside for the rest of the lease,
			// which is how long it tries.
		default:
			t.Fatal(err)
		}
		<-done
	}
	c.Close()
	wantEmpty(t, s)
}

func TestReleaseOfALostLeaseLetsTheNextInAtOnce(t *testing.T) {
	// The holding was ended by MaxHold long before the store's lease. The key stays taken
	// until its holder has surely looked; its Release says that it has.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		c := client(t, newTap(s), &fencelock.Options{TTL: time.Minute})
		other := client(t, newTap(s), &fencelock.Options{TTL: time.Minute})
		l := mustLock(t, c, "k", fencelock.MaxHold(5*time.Second))
		in, err := c.Lock(l.Context(), "k", fencelock.Reentrant())
		must(t, err)
		got := lockLater(t, other)
		<-l.Context().Done()
		l.Release(context.Background())
		after(time.Second)
		nothing(t, got, "granted while a handle of the lost grant was not released yet")
		begin := time.Now()
		if err := in.Release(context.Background()); !errors.Is(err, fencelock.ErrMaxHold) {
			t.Errorf("%v", err)
		}
		next := <-got
		tookAtMost(t, begin, time.Second)
		mustRelease(t, next)
	})
}

func TestCloseWithManyLeasesSendsFewLeavesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		var now, most atomic.Int32
		b.leave = func(ctx context.Context, k driver.Ticket, e driver.Exit, do func() error) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			after(time.Millisecond)
			return do()
		}
		for i := range 300 {
			mustLock(t, c, fmt.Sprint("k", i))
		}
		c.Close()
		if most.Load() > 256 {
			t.Errorf("%d Leaves at once", most.Load())
		}
	})
}

// soonOver is a context whose deadline passes a moment before it ends, as it does with all of
// them.
type soonOver struct {
	context.Context
	end time.Time
}

func (c soonOver) Deadline() (time.Time, bool) { return c.end, true }

// TestRenewThatRunsOutOfTimeSaysNothingOfTheStore: a connection has the deadline of the call
// too, and may see it first.
func TestRenewThatRunsOutOfTimeSaysNothingOfTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		risks := 0
		c := client(t, b, &fencelock.Options{TTL: ttl, OnEvent: testclient.On(fencelock.EventAtRisk, func(fencelock.Event) { risks++ })})
		l := mustLock(t, c, "k")
		b.set(func() {
			b.renew = func(ctx context.Context, ts []driver.Ticket, _ func() []error) []error {
				after(time.Millisecond)
				return all(ts, driverutil.Ended(ctx))
			}
		})
		if err := l.Renew(soonOver{t.Context(), time.Now().Add(time.Millisecond)}); err == nil {
			t.Error("the schedule of this test no longer holds: Renew succeeded")
		}
		b.set(func() { b.renew = nil })
		synctest.Wait()
		if risks > 0 {
			t.Errorf("a Renew that ran out of its own time said %d times that the lease is at risk", risks)
		}
		mustRelease(t, l)
	})
}

func TestMoreLeasesThanGoOutAtOnceAreRenewed(t *testing.T) {
	// All are due in the same moment, and more than may be on their way together. A tick that takes
	// up again what it has just put off would never end.
	bubbleFor(t, 2*time.Minute, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			after(50 * time.Millisecond)
			return do()
		}
		var leases []*fencelock.Lease
		for i := range 40000 {
			leases = append(leases, mustLock(t, c, fmt.Sprint(i)))
		}
		after(3 * ttl)
		for _, l := range leases {
			if err := l.Err(); err != nil {
				t.Fatalf("%s: %v", l.Key(), err)
			}
		}
	})
}
