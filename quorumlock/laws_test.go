package quorumlock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testmember"
	"github.com/fencelock/fencelock/quorumlock"
)

// stores makes n members that are ready to take ballots.
func stores(t testing.TB, n int) []*testmember.Member {
	t.Helper()
	all := make([]*testmember.Member, n)
	for i := range all {
		all[i] = testmember.New(ballot.Membership{})
		steps.Must(t, all[i].Initialise(t.Context()))
	}
	return all
}

// quorum opens one more view of the same stores.
func quorum(t testing.TB, all []*testmember.Member) *quorumlock.Backend {
	t.Helper()
	return quorumOf(t, all, func(_ int, s *testmember.Member) driver.Backend { return s })
}

// quorumOf opens a quorum of members that wrap makes of stores.
func quorumOf(
	t testing.TB, all []*testmember.Member, wrap func(i int, s *testmember.Member) driver.Backend,
) *quorumlock.Backend {
	t.Helper()
	members := make([]driver.Backend, len(all))
	for i, s := range all {
		members[i] = wrap(i, s)
	}
	b := quorumlock.New(members, nil)
	t.Cleanup(func() { steps.Must(t, b.Close()) })
	return b
}

func TestQuorumKeepsTheLaws(t *testing.T) {
	all := stores(t, 3)
	drivertest.Run(t, func(t *testing.T) driver.Backend { return quorum(t, all) }, drivertest.InBubbles(),
		drivertest.ExpiryLag(50*time.Millisecond))
}

func TestQuorumAnswersAsTheModelSays(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		all := stores(t, n)
		open := func(t *testing.T) driver.Backend { return quorum(t, all) }
		drivertest.Model(t, open, 1, 2, 3)
		drivertest.Model(t, open)
	}
}
