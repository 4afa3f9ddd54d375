package fencelock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// TestClaimThatExpiredInLineIsTakenOut: on a store where the claims of a process share a
// lease, the one that its caller has given up is kept alive by the others, and stands in
// everybody's way for ever.
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
