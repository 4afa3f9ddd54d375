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
)

// TestAwaitThatHangsIsAskedAgain: a push is lost in a driver that waits for nothing else. The
// claim is renewed meanwhile, so it would wait forever for a lock that is its own.
func TestAwaitThatHangsIsAskedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		b, c := w.apart(nil)
		b.meddle(only(atFirst(silent), "await"), nil)
		held := w.lock(w.brief(), "k")
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		waits := w.begin(func() (*fencelock.Lease, error) { return c.Lock(ctx, "k") })
		time.Sleep(time.Second)
		w.release(held)
		begin := time.Now()
		l := w.got(waits.wait())
		tookAtMost(t, begin, 2*time.Second+ttl/3)
		w.release(l)
	})
}

// TestClaimThatExpiredInLineIsTakenOut: where the claims of a process share a lease, the others
// would keep an abandoned claim in line forever.
func TestClaimThatExpiredInLineIsTakenOut(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.brief(), "k")
		b, c := w.apart(nil)
		waits := w.later(c, "k")
		b.meddle(only(silent, "renew"), nil)
		time.Sleep(ttl + 5*time.Second)
		b.heal()
		entered := b.entered()
		if len(entered) < 2 || entered[0].ID == entered[1].ID {
			t.Fatalf("it has entered as %+v; want a second time, with another ID", entered)
		}
		if !slices.ContainsFunc(b.left(), func(e exit) bool { return e.id == entered[0].ID }) {
			t.Errorf("no Leave was sent for the first claim; the Leaves are %+v", b.left())
		}
		w.release(l)
		w.release(w.got(waits.wait()))
	})
}

// TestHandOffThatCrossesACancellationIsReleasedInTheBackground: giving it back is not the caller's
// business, who has ended the call, and the store may take its time.
func TestHandOffThatCrossesACancellationIsReleasedInTheBackground(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(only(takes(100*time.Millisecond), "leave"), nil)
		handedOn := 0
		c := w.mute(&fencelock.Options{TTL: ttl, HandOff: 64, OnEvent: testclient.On(fencelock.EventAcquired, func(e fencelock.Event) {
			if e.Handoff {
				handedOn++
			}
		})})
		crossed := 0
		for i := range 300 {
			l, err := c.TryLock(bg, "k")
			if err != nil {
				t.Fatalf("nobody holds it, and it is not free: %v", err)
			}
			ctx, cancel := context.WithCancel(bg)
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
				go l.Release(bg)
				go cancel()
			} else {
				// The hand-off comes first, and its goroutine has not run yet: only the race
				// detector has the scheduler find that order by itself.
				go func() {
					_ = l.Release(bg)
					cancel()
				}()
			}
			if l := <-got; l != nil {
				w.release(l)
			} else if synctest.Wait(); handedOn > before {
				crossed++
			}
			time.Sleep(time.Second) // the Leave has come back
		}
		if crossed == 0 {
			t.Error("no hand-off crossed a cancellation: this tests nothing")
		}
	})
}

// TestClaimThatIsNotFoundIsLeftBeforeAnotherEnters: a store that lags behind says that a waiting claim
// is not there, just when it is granted. Another one would wait behind it for a TTL.
func TestClaimThatIsNotFoundIsLeftBeforeAnotherEnters(t *testing.T) {
	for _, lost := range []error{nil, context.DeadlineExceeded} { // the answer to the Leave
		inWorld(t, func(w *world) {
			b, c := w.apart(nil)
			held := w.lock(w.brief(), "k")
			b.awaited = func(k *driver.Ticket) error {
				if k.Granted && len(b.entered()) == 1 {
					return driver.GoneError{}
				}
				return nil
			}
			b.meddle(only(atFirst(func(context.Context, string) error {
				steps.Same(t, "claims have entered when the first one leaves", len(b.entered()), 1)
				return nil
			}), "leave"), only(atFirst(func(context.Context, string) error { return lost }), "leave"))
			waits := w.later(c, "k")
			begin := time.Now()
			w.release(held)
			l := w.got(waits.wait())
			tookAtMost(t, begin, time.Second)
			w.release(l)
			wantEmpty(t, w.store.Store)
		})
	}
}
