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
	"github.com/fencelock/fencelock/memlock"
)

const ttl = 10 * time.Second

var errCut = errors.New("connection cut")

func TestDeadlineCountsFromSending(t *testing.T) {
	// The answer to Enter takes 3 s. The store's lease began when it got the call, so
	// a deadline counted from the answer would lie 3 s after the store's.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		b.enter = func(ctx context.Context, c driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			k, err := do()
			after(3 * time.Second)
			return k, err
		}
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error { return all(ts, errCut) }
		c := client(t, b, &fencelock.Options{TTL: ttl})
		start := time.Now()
		l := mustLock(t, c, "k")
		<-l.Context().Done()
		if got := time.Since(start); got > ttl-ttl/100 {
			t.Errorf("the context ended %v after the lease was asked for; the store's lease ends after %v", got, ttl)
		}
		if err := context.Cause(l.Context()); !errors.Is(err, fencelock.ErrExpired) || !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("the cause is %v", err)
		}
		b.set(func() { b.renew = nil })
		after(ttl)
		c.Close()
	})
}

func TestLateAnswerMovesNoDeadlineBack(t *testing.T) {
	// The automatic renewal is answered 3 s late. One by hand, sent after it, was answered
	// at once and has put the deadline further than the late answer knows of.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			late := b.renewals() == 1
			errs := do()
			if late {
				after(3 * time.Second)
			}
			return errs
		}
		c := client(t, b, &fencelock.Options{TTL: ttl})
		l := mustLock(t, c, "k")
		after(ttl/3 + time.Second)
		if err := l.Renew(context.Background()); err != nil {
			t.Fatal(err)
		}
		before := l.Deadline()
		after(2100 * time.Millisecond) // the late answer has come, the next renewal has not been sent
		if got := l.Deadline(); got.Before(before) {
			t.Errorf("a late answer moved the deadline back by %v", before.Sub(got))
		}
		mustRelease(t, l)
		c.Close()
	})
}

func TestRenewalCountsFromSending(t *testing.T) {
	// Each renewal is answered 3 s late, then none any more.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		var last time.Time
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			if b.renewals() > 3 {
				return all(ts, errCut)
			}
			last = time.Now()
			errs := do()
			after(3 * time.Second)
			return errs
		}
		c := client(t, b, &fencelock.Options{TTL: ttl})
		l := mustLock(t, c, "k")
		<-l.Context().Done()
		if got := time.Since(last); got > ttl-ttl/100 || got < ttl-ttl/50 {
			t.Errorf("the context ended %v after the last answered renewal was sent; want just below %v", got, ttl)
		}
		after(ttl)
		c.Close()
	})
}

func TestAnswerAfterItsOwnDeadlineIsNoGrant(t *testing.T) {
	// A driver that ignores its time limit answers "granted" 11 s after it was asked
	// for a lease of 10 s. The store has given the key to somebody else by then.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		b.enter = func(ctx context.Context, c driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			k, err := do()
			if len(b.entered()) == 1 {
				after(11 * time.Second)
			}
			return k, err
		}
		c := client(t, b, &fencelock.Options{TTL: ttl})
		other := client(t, newTap(s), &fencelock.Options{TTL: ttl})
		got := make(chan *fencelock.Lease)
		go func() { got <- mustLock(t, c, "k") }()
		after(10500 * time.Millisecond)
		l2 := mustLock(t, other, "k")
		after(5 * time.Second)
		select {
		case <-got:
			t.Fatal("granted on the word of an answer whose lease was over, while another one holds the key")
		default:
		}
		mustRelease(t, l2)
		l1 := <-got
		if l1.Token() <= l2.Token() {
			t.Errorf("token %v after %v", l1.Token(), l2.Token())
		}
		mustRelease(t, l1)
		c.Close()
		other.Close()
	})
}

func TestLatePushDoesNotReviveWaiter(t *testing.T) {
	// A waiter's renewals fail, so its claim ends in the store while it waits. Then a
	// push that was held up says "granted". Its claim is gone: another one holds the key.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		holder := client(t, newTap(s), &fencelock.Options{TTL: ttl})
		l := mustLock(t, holder, "k")
		b := newTap(s)
		lie := true
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error { return all(ts, errCut) }
		b.await = func(ctx context.Context, k driver.Ticket, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			if !lie {
				return do()
			}
			lie = false
			after(ttl + time.Second)
			k.Granted = true
			return k, nil
		}
		c := client(t, b, &fencelock.Options{TTL: ttl})
		got := make(chan *fencelock.Lease, 1)
		go func() { got <- mustLock(t, c, "k") }()
		after(ttl + 2*time.Second)
		select {
		case <-got:
			t.Fatal("granted by a push for a claim whose lease was over")
		default:
		}
		if n := len(b.entered()); n != 2 || b.entered()[0].ID == b.entered()[1].ID {
			t.Errorf("%d Enters; want a second one with a new ID", n)
		}
		b.set(func() { b.renew = nil })
		mustRelease(t, l)
		mustRelease(t, <-got)
		c.Close()
		holder.Close()
	})
}

func TestOldGrantIsRenewedBeforeLockReturns(t *testing.T) {
	// The push arrives when half of the waiter's lease has passed since its last
	// renewal. Handing it out like that would leave its holder half a lease.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		holder := client(t, newTap(s), &fencelock.Options{TTL: ttl})
		l := mustLock(t, holder, "k")
		b := newTap(s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			if time.Now().Before(start(b).Add(5 * time.Second)) {
				return all(ts, errCut)
			}
			return do()
		}
		c := client(t, b, &fencelock.Options{TTL: ttl, Backoff: func(int) time.Duration { return time.Hour }})
		begin := time.Now()
		got := make(chan *fencelock.Lease, 1)
		go func() { got <- mustLock(t, c, "k") }()
		after(4900 * time.Millisecond)
		mustRelease(t, l)
		l2 := <-got
		if left := time.Until(l2.Deadline()); left < 2*ttl/3-200*time.Millisecond {
			t.Errorf("Lock returned after %v with %v left of a lease of %v", time.Since(begin), left, ttl)
		}
		mustRelease(t, l2)
		c.Close()
		holder.Close()
	})
}

var bubbleStart = map[*tap]time.Time{}

func start(b *tap) time.Time {
	if _, ok := bubbleStart[b]; !ok {
		bubbleStart[b] = time.Now().Add(-3333 * time.Millisecond)
	}
	return bubbleStart[b]
}

func TestFailedRenewalIsARiskNotALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		var down atomic.Bool
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			if down.Load() {
				return all(ts, errCut)
			}
			return do()
		}
		var risks, losses atomic.Int32
		c := client(t, b, &fencelock.Options{TTL: ttl, Hooks: fencelock.Hooks{
			AtRisk: func(e fencelock.Event) {
				risks.Add(1)
				if e.Err == nil || e.Left <= 0 {
					t.Errorf("at risk, with error %v and %v left", e.Err, e.Left)
				}
			},
			Lost: func(fencelock.Event) { losses.Add(1) },
		}})
		l := mustLock(t, c, "k")
		down.Store(true)
		after(9 * time.Second)
		if err := l.Err(); err != nil {
			t.Errorf("after 9 s of a lease of 10 s without an answer: %v; nobody has said that it is lost", err)
		}
		down.Store(false)
		after(ttl)
		if err := l.Err(); err != nil {
			t.Errorf("the store answered in time: %v", err)
		}
		if risks.Load() != 1 || losses.Load() != 0 {
			t.Errorf("told %d risks and %d losses; want 1 and 0", risks.Load(), losses.Load())
		}
		mustRelease(t, l)
		c.Close()
	})
}

func TestGoneIsALossAtOnce(t *testing.T) {
	// A flush of the store is a loss, seen with the next renewal, and no invitation to
	// enter again behind the holder's back.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		c := client(t, b, &fencelock.Options{TTL: ttl})
		begin := time.Now()
		l := mustLock(t, c, "k")
		s.Flush()
		<-l.Context().Done()
		if got := time.Since(begin); got > ttl/3+time.Second {
			t.Errorf("the holder was told after %v; a renewal comes every %v", got, ttl/3)
		}
		if err := l.Err(); !errors.Is(err, fencelock.ErrBroken) {
			t.Errorf("the cause is %v; want ErrBroken", err)
		}
		if n := len(b.entered()); n != 1 {
			t.Errorf("%d Enters; the claim was entered again", n)
		}
		if err := l.Release(context.Background()); !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("Release of a lost lease: %v", err)
		}
		c.Close()
	})
}

func TestLostLeaseNeverComesBack(t *testing.T) {
	// A renewal is answered well just after the deadline. The holder may have looked
	// and gone; the answer must not take that back.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			errs := do()
			after(ttl) // ignores its time limit
			return errs
		}
		var lost atomic.Int32
		c := client(t, b, &fencelock.Options{TTL: ttl, Hooks: fencelock.Hooks{Lost: func(fencelock.Event) { lost.Add(1) }}})
		l := mustLock(t, c, "k")
		<-l.Context().Done()
		err := l.Err()
		after(5 * ttl)
		if again := l.Err(); again == nil || again != err {
			t.Errorf("first %v, later %v", err, again)
		}
		if lost.Load() != 1 {
			t.Errorf("Lost was told %d times", lost.Load())
		}
		c.Close()
	})
}

func TestErrTellsBeforeAnyTimer(t *testing.T) {
	// Err is asked in the very moment of the deadline, from a timer that was set
	// before the Client's own.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			<-ctx.Done()
			return all(ts, ctx.Err())
		}
		c := client(t, b, &fencelock.Options{TTL: ttl})
		l := mustLock(t, c, "k")
		at := l.Deadline()
		time.Sleep(time.Until(at))
		if err := l.Err(); !errors.Is(err, fencelock.ErrExpired) {
			t.Errorf("at the deadline Err is %v", err)
		}
		after(ttl)
		c.Close()
	})
}

func TestExpiredLeaseIsLeftToRunOutAndThenLeft(t *testing.T) {
	// On stores where claims share a lease, the other claims of the process keep a lost
	// one in line for ever unless it is told to leave. But not before its own time:
	// its holder may not have looked yet.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		refused := 0
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error { return all(ts, errCut) }
		b.leave = func(ctx context.Context, k driver.Ticket, e driver.Exit, do func() error) error {
			if refused++; refused <= 5 {
				return errCut
			}
			return do()
		}
		c := client(t, b, &fencelock.Options{TTL: ttl})
		begin := time.Now()
		l := mustLock(t, c, "k")
		<-l.Context().Done()
		after(10 * ttl)
		left := b.left()
		if len(left) != 6 {
			t.Fatalf("%d Leaves; want 5 that failed and one that was answered", len(left))
		}
		if first := left[0].at.Sub(begin); first < ttl {
			t.Errorf("the first Leave came after %v, before the store's lease of %v was over", first, ttl)
		}
		l.Release(context.Background())
		if len(b.left()) != 6 {
			t.Error("Release of a lost lease sent a Leave")
		}
		c.Close()
	})
}

func TestMaxHoldIsLeftAfterTheServersLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		c := client(t, b, &fencelock.Options{TTL: ttl})
		begin := time.Now()
		l := mustLock(t, c, "k", fencelock.MaxHold(25*time.Second))
		<-l.Context().Done()
		if got := time.Since(begin); got != 25*time.Second {
			t.Errorf("ended after %v", got)
		}
		if err := context.Cause(l.Context()); !errors.Is(err, fencelock.ErrMaxHold) {
			t.Errorf("cause %v", err)
		}
		n := b.renewals()
		after(3 * ttl)
		if b.renewals() != n {
			t.Error("renewed after MaxHold")
		}
		left := b.left()
		if len(left) != 1 {
			t.Fatalf("%d Leaves; want 1", len(left))
		}
		// The last renewal before 25 s was answered at some time r; the server's lease
		// ends at r+ttl, which is after the end of the holding.
		if at := left[0].at.Sub(begin); at <= 25*time.Second {
			t.Errorf("left after %v, while its holder might still act", at)
		}
		c.Close()
	})
}

func TestSlowRenewalDoesNotHoldUpOthers(t *testing.T) {
	// Renewals of one length of lease hang; those of another go on.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			if ts[0].Key == "slow" {
				<-ctx.Done()
				return all(ts, ctx.Err())
			}
			return do()
		}
		c := client(t, b, &fencelock.Options{TTL: ttl})
		slow := mustLock(t, c, "slow", fencelock.TTL(30*time.Second))
		fine := mustLock(t, c, "fine")
		after(time.Minute)
		if slow.Err() == nil {
			t.Error("the lease that was never renewed is believed after two of its lengths")
		}
		if err := fine.Err(); err != nil {
			t.Errorf("the other one: %v", err)
		}
		mustRelease(t, fine)
		after(time.Minute)
		c.Close()
	})
}

func TestManyLeasesAreRenewedInFewCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		const n = 3000
		b := newTap(s)
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
		c := client(t, b, &fencelock.Options{TTL: ttl})
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
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
			mustRelease(t, l)
		}
		c.Close()
	})
}

func TestNoRenewalIsOnItsWayAfterRelease(t *testing.T) {
	// The release comes while a renewal is on its way. It lets the next one in at once,
	// but it returns when the renewal has come back.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		var sending atomic.Bool
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			sending.Store(true)
			after(time.Second)
			sending.Store(false)
			return do()
		}
		c := client(t, b, &fencelock.Options{TTL: ttl})
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
		if b.renewals() != n {
			t.Error("a released lease is renewed")
		}
		c.Close()
	})
}

func TestRenewalRacesRelease(t *testing.T) {
	// The renewal by hand, the renewal by the clock and the release of one lease, all
	// at once. Whatever happens, Release succeeds while the lease lasts, and nothing is left.
	s := memlock.New()
	c := fencelock.New(s, &fencelock.Options{TTL: 20 * time.Millisecond, HandOff: 1})
	ctx := context.Background()
	for range 10000 {
		l, err := c.Lock(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
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

func TestLeaseContextEndsWhenTheMachineIsBusy(t *testing.T) {
	// One lease among others in virtual time, with goroutines that never yield: the
	// deadline is judged by Err, whatever the scheduler does.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error { return all(ts, errCut) }
		c := client(t, b, &fencelock.Options{TTL: ttl})
		l := mustLock(t, c, "k")
		deadline := l.Deadline()
		for time.Now().Before(deadline) {
			if err := l.Err(); err != nil {
				t.Fatalf("lost %v before its deadline: %v", time.Until(deadline), err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if l.Err() == nil {
			t.Error("still believed after its deadline")
		}
		synctest.Wait()
		after(ttl)
		c.Close()
	})
}

func TestReleaseOfALostLeaseLetsTheNextInAtOnce(t *testing.T) {
	// The holding was ended by MaxHold long before the store's lease. The key stays taken
	// until its holder has surely looked; its Release says that it has.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		c := client(t, newTap(s), &fencelock.Options{TTL: time.Minute})
		other := client(t, newTap(s), &fencelock.Options{TTL: time.Minute})
		l := mustLock(t, c, "k", fencelock.MaxHold(5*time.Second))
		in, err := c.Lock(l.Context(), "k", fencelock.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *fencelock.Lease, 1)
		go func() { got <- mustLock(t, other, "k") }()
		<-l.Context().Done()
		l.Release(context.Background())
		after(time.Second)
		select {
		case <-got:
			t.Fatal("granted while a handle of the lost grant was not released yet")
		default:
		}
		begin := time.Now()
		if err := in.Release(context.Background()); !errors.Is(err, fencelock.ErrMaxHold) {
			t.Errorf("%v", err)
		}
		next := <-got
		if waited := time.Since(begin); waited > time.Second {
			t.Errorf("the next one waited %v after the last release", waited)
		}
		mustRelease(t, next)
		c.Close()
		other.Close()
	})
}

func TestCloseWithManyLeasesSendsFewLeavesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		var now, most atomic.Int32
		b.leave = func(ctx context.Context, k driver.Ticket, e driver.Exit, do func() error) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			after(time.Millisecond)
			return do()
		}
		c := client(t, b, &fencelock.Options{TTL: ttl})
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
		c := client(t, b, &fencelock.Options{TTL: ttl, Hooks: fencelock.Hooks{AtRisk: func(fencelock.Event) { risks++ }}})
		l := mustLock(t, c, "k")
		b.set(func() {
			b.renew = func(ctx context.Context, ts []driver.Ticket, _ func() []error) []error {
				after(time.Millisecond)
				return all(ts, driver.Ended(ctx))
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
		c.Close()
	})
}
