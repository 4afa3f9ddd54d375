package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/quorumlock"
)

func openMember(t *testing.T, s *testserver.Server) driver.Backend {
	b, end := member(s.Addr(), lasting)
	t.Cleanup(func() {
		b.Close()
		end()
	})
	return b
}

func TestRedisMemberKeepsTheLaws(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	check(t, openMember(t, s).(driver.Member).Initialise(t.Context()))
	view := func(t *testing.T) driver.Backend { return openMember(t, s) }
	drivertest.Run(t, view, drivertest.Fresh(t, func(t *testing.T) driver.Backend { return openMember(t, testserver.Redis(t)) }))
	drivertest.Model(t, view)
}

func TestQuorumOfFiveKeepsTheLaws(t *testing.T) {
	t.Parallel()
	all := lawful(t)
	drivertest.Run(t, func(t *testing.T) driver.Backend { return openAs(t, all, lasting) }, drivertest.Lease(time.Second))
}

func TestQuorumOfFiveAnswersAsTheModelSays(t *testing.T) {
	t.Parallel()
	all := lawful(t)
	drivertest.Model(t, func(t *testing.T) driver.Backend { return settled{openAs(t, all, lasting)} })
}

// lawful starts five servers whose leases last long.
func lawful(t *testing.T) []*testserver.Server {
	t.Helper()
	return readyAs(t, servers(t, 5), lasting)
}

// settled is a quorum of which each call returns when all nodes are done: the model
// compares how many are in the way, of which a node that lags a little has another
// number.
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
