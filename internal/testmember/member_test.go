package testmember_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testmember"
)

// A member keeps all laws, and those of ballots.
func TestMemberKeepsTheLaws(t *testing.T) {
	m := testmember.New(ballot.Membership{})
	steps.Must(t, m.Initialise(t.Context()))
	open := func(*testing.T) driver.Backend { return m }
	fresh := func(*testing.T) driver.Backend { return testmember.New(ballot.Membership{}) }
	drivertest.Run(t, open, drivertest.KeepsServing(), drivertest.ExpiryLag(time.Millisecond),
		drivertest.Lease(60*time.Millisecond), drivertest.Fresh(t, fresh))
	drivertest.Model(t, open, 1, 2, 3)
}

// Two claims follow one another within microseconds: the ballots leave a gap, and the Store's
// tokens of the same claims leave none. A token of the gap belongs to neither claim.
func TestBreakBehindASpanEndsNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := testmember.New(ballot.Membership{}), t.Context()
		steps.Must(t, m.Initialise(ctx))
		enter := func(id string, ballot, span int64) driver.Ticket {
			held, err := m.Enter(ctx, driver.Claim{Key: "k", ID: id, Owner: id, Capacity: driver.RW, Weight: driver.RW,
				TTL: time.Second, Span: span, NoWait: true, Ballot: ballot})
			steps.Must(t, err)
			return held
		}
		clock := time.Now().UnixMicro() // of the Store
		first := enter("a-claim-of-the-first", clock-50, 100)
		steps.Must(t, m.Leave(ctx, first, driver.Exit{}))
		second := enter("a-claim-of-the-second", clock+60, 10)
		for at := clock - 60; at < clock+80; at++ {
			if second.Token <= at && at < second.Token+second.Span {
				continue
			}
			if err := m.Break(ctx, "k", at, driver.Break{}); !driver.Gone(err) {
				t.Fatalf("Break with a token that is %d from the claim returned %v; want that it is gone",
					at-second.Token, err)
			}
		}
		steps.Must(t, m.Break(ctx, "k", second.Token+9, driver.Break{}))
	})
}
