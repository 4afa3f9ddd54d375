package quorumlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/quorumlock"
)

// stores makes n members that are ready to take ballots.
func stores(t testing.TB, n int) []*memlock.Store {
	t.Helper()
	all := make([]*memlock.Store, n)
	for i := range all {
		all[i] = memlock.NewMember(nil)
		if err := all[i].Initialise(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// quorum opens one more view of the same stores.
func quorum(t testing.TB, all []*memlock.Store) *quorumlock.Backend {
	t.Helper()
	members := make([]driver.Backend, len(all))
	for i, s := range all {
		members[i] = s
	}
	b := quorumlock.New(members, nil)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func TestQuorumKeepsTheLaws(t *testing.T) {
	for _, n := range []int{3, 5} {
		all := stores(t, n)
		drivertest.Run(t, func(t *testing.T) driver.Backend { return quorum(t, all) },
			drivertest.ExpiryLag(50*time.Millisecond), drivertest.Lease(100*time.Millisecond))
	}
}

func TestQuorumAnswersAsTheModelSays(t *testing.T) {
	for _, n := range []int{3, 5} {
		all := stores(t, n)
		open := func(t *testing.T) driver.Backend { return settled{quorum(t, all)} }
		drivertest.Model(t, open, 1, 2, 3, 4, 5)
		drivertest.Model(t, open)
	}
}

// settled is a quorum of which each call returns when all nodes are done, not only a
// majority: the model compares what they say of one another, such as how many are in
// the way, which a node that lags a little says otherwise.
type settled struct{ *quorumlock.Backend }

func (b settled) settle() { b.Settle(context.Background()) }

func (b settled) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	defer b.settle()
	return b.Backend.Enter(ctx, c)
}

func (b settled) Renew(ctx context.Context, ts []driver.Ticket) []error {
	defer b.settle()
	return b.Backend.Renew(ctx, ts)
}

func (b settled) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	defer b.settle()
	return b.Backend.Leave(ctx, t, e)
}

func (b settled) Break(ctx context.Context, key string, token int64, reason string) error {
	defer b.settle()
	return b.Backend.Break(ctx, key, token, reason)
}
