package etcdlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// cluster is three members.
type cluster struct {
	t       testing.TB
	members []*testserver.Server
	etcd    *clientv3.Client
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	members := testserver.EtcdCluster(t, 3)
	return &cluster{t: t, members: members, etcd: client(t, members...)}
}

func (c *cluster) backend(prefix string) driver.Backend {
	c.t.Helper()
	return backend(c.t, client(c.t, c.members...), prefix)
}

// leader is the member that all agree on, and another one.
func (c *cluster) leader() (leader, follower *testserver.Server) {
	c.t.Helper()
	testserver.Eventually(c.t, 2*time.Minute, "all members know one leader", func() bool {
		leaders := map[uint64]bool{} // one that hung may still believe that it leads
		for _, m := range c.members {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			s, err := c.etcd.Status(ctx, m.Addr())
			cancel()
			switch {
			case err != nil || s.Leader == 0:
				return false
			case s.Leader == s.Header.MemberId:
				leader = m
			default:
				follower = m
			}
			leaders[s.Leader] = true
		}
		return len(leaders) == 1
	})
	return leader, follower
}

// TestThreeMembers plays the model, and the faults that one member's end is.
//
//verify:fault etcd | answers as the model does | /Model
//verify:fault etcd | leader changed, killed or hanging
func TestThreeMembers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	views := func(t *testing.T) driver.Backend { return backend(t, client(t, c.members...), "laws/") }
	t.Run("Model", func(t *testing.T) { drivertest.Model(t, views) })

	t.Run("OneIsDown", func(t *testing.T) {
		_, follower := c.leader()
		c.handed(t, func() { steps.Must(t, follower.Kill()) })
		drivertest.Model(t, views, drivertest.Seeds(t, 1)...)
		steps.Must(t, follower.Restart())
	})
	t.Run("TheLeaderIsKilled", func(t *testing.T) {
		leader, _ := c.leader()
		c.handed(t, func() { steps.Must(t, leader.Kill()) })
		steps.Must(t, leader.Restart())
	})
	t.Run("TheLeaderHangs", func(t *testing.T) {
		leader, _ := c.leader()
		c.handed(t, func() { steps.Must(t, leader.Pause()) })
		steps.Must(t, leader.Continue())
	})
	t.Run("TheLeaderComesBack", c.theLeaderComesBack)
	t.Run("AHolderDiesWithTheLeader", c.aHolderDiesWithTheLeader)
	t.Run("TwoAreDown", c.twoAreDown)
}

// handed passes a lock on while f happens, and holds every answer to the laws.
func (c *cluster) handed(t *testing.T, f func()) {
	t.Helper()
	prefix := newPrefix()
	a, b := c.backend(prefix), c.backend(prefix)
	holder := steps.Hold(t, a, steps.Claim("k"))
	steps.Must(t, a.Leave(steps.Soon(t), holder, driver.Exit{Mark: "before"}))
	holder = steps.Hold(t, a, steps.Claim("k"))
	next, last := steps.Wait(t, b, steps.Claim("k")), steps.Wait(t, a, steps.Claim("k"))
	awaited := steps.Await(t, b, next)
	watched(t, c.members...)
	f()
	steps.PersistRenew(t, a, holder)
	steps.PersistRenew(t, b, next)
	select {
	case got := <-awaited:
		t.Fatalf("a waiter was granted beside the holder, or ended: %+v", got)
	default:
	}
	steps.PersistLeave(t, a, holder, driver.Exit{Mark: "done"})
	next = steps.Within(t, 2*time.Minute, awaited)
	steps.Rises(t, holder.Token, next.Token)
	steps.Same(t, "the mark", next.Mark, "done")
	steps.PersistLeave(t, b, next)
	steps.PersistLeave(t, a, steps.Within(t, 2*time.Minute, steps.Await(t, a, last)))
}

// A leader that resumes after an election may end leases that its successor has renewed
// (seen by the torture with etcd 3.7.3). The holder is told at its next renewal, and the next token is
// larger.
func (c *cluster) theLeaderComesBack(t *testing.T) {
	leader, _ := c.leader()
	prefix := newPrefix()
	a, b := c.backend(prefix), c.backend(prefix)
	// The leader before this one has just come back, too, and a request may be lost on it.
	holder := steps.PersistEnter(t, a, steps.TTL(steps.Claim("k"), lease))
	renewed := func(d time.Duration) {
		gone := false
		for until := time.Now().Add(d); !gone && time.Now().Before(until); sleep(lease / 40) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the request may be lost
			gone = driver.Gone(a.Renew(ctx, []driver.Ticket{holder})[0])
			cancel()
		}
	}
	steps.Must(t, leader.Pause())
	renewed(3 * lease)
	steps.Must(t, leader.Continue())
	renewed(lease)
	var next driver.Ticket
	var refused *driver.BusyError
	steps.Persist(t, "Enter", func(ctx context.Context) (err error) {
		if next, err = b.Enter(ctx, steps.NoWait(steps.Claim("k"))); errors.As(err, &refused) {
			err = nil
		}
		return err
	})
	if refused == nil {
		t.Log("the leader came back, and a lease that was renewed was ended")
		steps.Rises(t, holder.Token, next.Token)
		testserver.Eventually(t, time.Minute, "the holder is told", func() bool {
			err := steps.Renew(t, a, holder)
			if err == nil {
				t.Fatal("a claim was renewed beside the next holder")
			}
			return driver.Gone(err)
		})
		steps.PersistLeave(t, b, next)
	}
}

// A change of leaders starts every lease again, so a lock that nobody renews may be
// held for longer, but not forever.
func (c *cluster) aHolderDiesWithTheLeader(t *testing.T) {
	leader, _ := c.leader()
	prefix := newPrefix()
	a, b := c.backend(prefix), c.backend(prefix)
	steps.PersistEnter(t, a, steps.TTL(steps.Claim("k"), lease)) // and is not heard of again
	next := steps.PersistEnter(t, b, steps.Claim("k"))
	steps.Must(t, leader.Kill())
	steps.PersistLeave(t, b, steps.Within(t, 2*time.Minute, steps.Await(t, b, next)))
	steps.Must(t, leader.Restart())
}

// A member that knows no leader says so at once, also to those who write, and does not
// keep them until their patience ends.
func (c *cluster) twoAreDown(t *testing.T) {
	leader, follower := c.leader()
	last := c.members[slices.IndexFunc(c.members, func(m *testserver.Server) bool { return m != leader && m != follower })]
	b := backend(t, client(t, last), newPrefix())
	holder := steps.Hold(t, b, steps.Claim("k"))
	for _, m := range []*testserver.Server{leader, follower} {
		steps.Must(t, m.Kill())
	}
	testserver.Eventually(t, time.Minute, "it knows no leader", func() bool {
		s, err := c.etcd.Status(steps.Soon(t), last.Addr())
		return err == nil && s.Leader == 0
	})
	for what, call := range map[string]func(context.Context) error{
		"Enter of a free line":    func(ctx context.Context) error { _, err := b.Enter(ctx, steps.Claim("free")); return err },
		"Enter of a crowded line": func(ctx context.Context) error { _, err := b.Enter(ctx, steps.Claim("k")); return err },
		"Renew":                   func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{holder})[0] },
		"Leave":                   func(ctx context.Context) error { return b.Leave(ctx, holder, driver.Exit{}) },
		"Leave without a token": func(ctx context.Context) error {
			return b.Leave(ctx, driver.Ticket{Claim: steps.Claim("k")}, driver.Exit{Tombstone: true})
		},
	} {
		err := call(steps.Soon(t))
		steps.Unknown(t, what+" without a leader", err)
		if !errors.Is(err, rpctypes.ErrNoLeader) {
			t.Fatalf("%s: %v; want that there is no leader", what, err)
		}
		if what == "Enter of a free line" && !isRefused(err) {
			t.Errorf("%s: %v; want it refused for now", what, err)
		}
	}
	for _, m := range []*testserver.Server{leader, follower} {
		steps.Must(t, m.Restart())
	}
	steps.PersistLeave(t, b, holder)
}
