package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
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
	steps.Must(t, openMember(t, s).(ballot.Member).Initialise(t.Context()))
	view := func(t *testing.T) driver.Backend { return openMember(t, s) }
	drivertest.Run(t, view, drivertest.Fresh(t, func(t *testing.T) driver.Backend { return openMember(t, testserver.Redis(t)) }))
	drivertest.Model(t, func(t *testing.T) driver.Backend { return lateMember{openMember(t, s).(*redislock.Backend)} })
}

//verify:fault A quorum of five Redis | the laws
func TestQuorumOfFiveKeepsTheLaws(t *testing.T) {
	t.Parallel()
	all := ready(t, servers(t, 5), lasting)
	drivertest.Run(t, func(t *testing.T) driver.Backend { return openSettling(t, all) }, drivertest.Lease(time.Second))
}

//verify:fault A quorum of five Redis | answers as the model does
func TestQuorumOfFiveAnswersAsTheModelSays(t *testing.T) {
	t.Parallel()
	all := ready(t, servers(t, 5), lasting)
	drivertest.Model(t, func(t *testing.T) driver.Backend { return lateQuorum{openSettling(t, all)} })
}

// late is how long a server of Redis may take before it is sent a request again. Then it keeps the ID of a
// claim out that it has refused, and does not tell a Leave from its repeat.
const late = 100 * time.Millisecond

type lateMember struct{ *redislock.Backend }

func (lateMember) SendsAgainAfter() time.Duration { return late }

type lateQuorum struct{ *quorumlock.Backend }

func (lateQuorum) SendsAgainAfter() time.Duration { return late }

// openSettling opens a quorum that settles before it closes: Close cuts off a Leave after half a
// second, and its claim would stay on a slow node for minutes.
func openSettling(t *testing.T, all []*testserver.Server) *quorumlock.Backend {
	t.Helper()
	b := open(t, all, lasting)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		steps.Must(t, b.Settle(ctx))
	})
	return b
}
