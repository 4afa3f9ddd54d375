package fencelock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// TestAwaitThatHangsIsAskedAgain: a push is lost in a driver that waits for nothing else. The
// claim is renewed meanwhile, so it would wait forever for a lock that is its own.
func TestAwaitThatHangsIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		first := true
		b.await = func(ctx context.Context, _ driver.Ticket, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			if first {
				first = false
				<-ctx.Done()
				return driver.Ticket{}, ctx.Err()
			}
			return do()
		}
		other := plain(t, s)
		held := mustLock(t, other, "k")
		got := make(chan *fencelock.Lease, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			l, err := c.Lock(ctx, "k")
			steps.Well(t, "Lock", err)
			got <- l
		}()
		after(time.Second)
		mustRelease(t, held)
		begin := time.Now()
		l := <-got
		tookAtMost(t, begin, 2*time.Second+ttl/3)
		if l != nil {
			mustRelease(t, l)
		}
	})
}

// TestClaimThatExpiredInLineIsTakenOut: where the claims of a process share a lease, the others
// would keep an abandoned claim in line forever.
func TestClaimThatExpiredInLineIsTakenOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		holder := plain(t, s)
		l := mustLock(t, holder, "k")
		b, c := tapped(t, s)
		granted := lockLater(t, c)
		synctest.Wait()
		b.set(func() {
			b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
				<-ctx.Done()
				return all(ts, ctx.Err())
			}
		})
		after(ttl + 5*time.Second)
		b.set(func() { b.renew = nil })
		entered := b.entered()
		if len(entered) < 2 || entered[0].ID == entered[1].ID {
			t.Fatalf("it has entered as %+v; want a second time, with another ID", entered)
		}
		if !slices.ContainsFunc(b.left(), func(x leaving) bool { return x.ticket.ID == entered[0].ID }) {
			t.Errorf("no Leave was sent for the first claim; the Leaves are %+v", b.left())
		}
		mustRelease(t, l)
		mustRelease(t, <-granted)
	})
}

// TestHandOffThatCrossesACancellationIsReleasedInTheBackground: giving it back is not the caller's
// business, who has ended the call, and the store may take its time.
func TestHandOffThatCrossesACancellationIsReleasedInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		k := newTap(s)
		k.leave = func(_ context.Context, _ driver.Ticket, _ driver.Exit, do func() error) error {
			after(100 * time.Millisecond)
			return do()
		}
		handedOn := 0
		c := client(t, k, &fencelock.Options{TTL: ttl, HandOff: 64, OnEvent: testclient.On(fencelock.EventAcquired, func(e fencelock.Event) {
			if e.Handoff {
				handedOn++
			}
		})})
		crossed := 0
		for i := range 300 {
			l, err := c.TryLock(context.Background(), "k")
			if err != nil {
				t.Fatalf("nobody holds it, and it is not free: %v", err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var ended time.Time
			got := make(chan *fencelock.Lease)
			before := handedOn
			go func() {
				l, _ := c.Lock(ctx, "k")
				if l == nil {
					tookAtMost(t, ended, 0)
				}
				got <- l
			}()
			synctest.Wait()
			ended = time.Now()
			if i%2 == 0 {
				go l.Release(context.Background())
				go cancel()
			} else {
				// The hand-off comes first, and its goroutine has not run yet: only the race
				// detector has the scheduler find that order by itself.
				go func() {
					_ = l.Release(context.Background())
					cancel()
				}()
			}
			if l := <-got; l != nil {
				mustRelease(t, l)
			} else if synctest.Wait(); handedOn > before {
				crossed++
			}
			after(time.Second) // the Leave has come back
		}
		if crossed == 0 {
			t.Error("no hand-off crossed a cancellation: this tests nothing")
		}
	})
}

// TestClaimThatIsNotFoundIsLeftBeforeAnotherEnters: a store that lags behind says that a waiting claim
// is not there, just when it is granted. Another one would wait behind it for a TTL.
func TestClaimThatIsNotFoundIsLeftBeforeAnotherEnters(t *testing.T) {
	for _, lost := range []bool{false, true} { // the answer to the Leave
		bubble(t, func(t *testing.T, s *memlock.Store) {
			b, c := tapped(t, s)
			held := mustLock(t, plain(t, s), "k")
			b.await = func(ctx context.Context, k driver.Ticket, do func() (driver.Ticket, error)) (driver.Ticket, error) {
				got, err := do()
				if err == nil && got.Granted && len(b.entered()) == 1 {
					return driver.Ticket{}, driver.GoneError{}
				}
				return got, err
			}
			b.leave = func(_ context.Context, _ driver.Ticket, _ driver.Exit, do func() error) error {
				steps.Same(t, "claims have entered when the first one leaves", len(b.entered()), 1)
				b.set(func() { b.leave = nil })
				if err := do(); err != nil || !lost {
					return err
				}
				return context.DeadlineExceeded
			}
			granted := lockLater(t, c)
			synctest.Wait()
			begin := time.Now()
			mustRelease(t, held)
			l := <-granted
			tookAtMost(t, begin, time.Second)
			mustRelease(t, l)
			wantEmpty(t, s)
		})
	}
}
