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
	for end := time.Now().Add(time.Minute); time.Now().Before(end); sleep(50 * time.Millisecond) {
		leaders := map[uint64]bool{} // one that hung may still believe that it leads
		for _, m := range c.members {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			s, err := c.etcd.Status(ctx, m.Addr())
			cancel()
			switch {
			case err != nil:
				leaders[0] = true
			case s.Leader == s.Header.MemberId:
				leader = m
			default:
				follower = m
			}
			if err == nil {
				leaders[s.Leader] = true
			}
		}
		if len(leaders) == 1 && !leaders[0] {
			return leader, follower
		}
	}
	c.t.Fatal("nobody leads")
	return nil, nil
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
	awaited := steps.Await(t, b, next) // a watch is open all the while
	sleep(100 * time.Millisecond)
	f()
	began := time.Now()
	steps.PersistRenew(t, a, holder)
	steps.PersistRenew(t, b, next)
	t.Logf("renewed %v after", time.Since(began))
	select {
	case got := <-awaited:
		t.Fatalf("a waiter was granted beside the holder, or ended: %+v", got)
	default:
	}
	steps.PersistLeave(t, a, holder, driver.Exit{Mark: "done"})
	next = steps.Within(t, 20*time.Second, awaited)
	if next.Token <= holder.Token || next.Mark != "done" {
		t.Errorf("the next has token %d and mark %q; want one above %d, and the mark of the Leave", next.Token, next.Mark, holder.Token)
	}
	steps.PersistLeave(t, b, next)
	steps.PersistLeave(t, a, steps.Within(t, 2*time.Minute, steps.Await(t, a, last)))
}

// A leader that resumes after an election may end leases that its successor has renewed
// (seen by the torture with etcd 3.7.3). The holder is told at once, and the next token is
// larger.
func (c *cluster) theLeaderComesBack(t *testing.T) {
	leader, _ := c.leader()
	prefix := newPrefix()
	a, b := c.backend(prefix), c.backend(prefix)
	// The leader before this one has just come back, too, and a request may be lost on it.
	holder := steps.PersistEnter(t, a, steps.TTL(steps.Claim("k"), lease))
	steps.Must(t, leader.Pause())
	until := time.Now().Add(3 * lease)
	for time.Now().Before(until) {
		steps.PersistRenew(t, a, holder)
		sleep(lease / 10)
	}
	steps.Must(t, leader.Continue())
	lost := false
	for until := time.Now().Add(lease); time.Now().Before(until) && !lost; sleep(lease / 40) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := a.Renew(ctx, []driver.Ticket{holder})[0]
		cancel()
		lost = driver.Gone(err)
	}
	t.Logf("the leader came back, and a lease that was alive was ended: %v", lost)
	var next driver.Ticket
	var refused *driver.BusyError
	steps.Persist(t, "Enter", func(ctx context.Context) (err error) {
		if next, err = b.Enter(ctx, steps.NoWait(steps.Claim("k"))); errors.As(err, &refused) {
			err = nil
		}
		return err
	})
	switch {
	case !lost && refused == nil:
		t.Errorf("granted with token %d beside a holder that is alive, and is not told", next.Token)
	case lost && refused != nil:
		t.Errorf("the holder was told that its lease is over, and the next is refused: %v", refused)
	case lost && next.Token <= holder.Token:
		t.Errorf("token %d after %d", next.Token, holder.Token)
	case lost:
		steps.PersistLeave(t, b, next)
	default:
		steps.PersistLeave(t, a, holder)
	}
}

// A change of leaders starts every lease again, so a lock that nobody renews may be
// held for longer, but not forever.
func (c *cluster) aHolderDiesWithTheLeader(t *testing.T) {
	leader, _ := c.leader()
	prefix := newPrefix()
	a, b := c.backend(prefix), c.backend(prefix)
	steps.PersistEnter(t, a, steps.TTL(steps.Claim("k"), lease)) // and is not heard of again
	next := steps.Wait(t, b, steps.Claim("k"))
	steps.Must(t, leader.Kill())
	killed := time.Now()
	next = steps.Within(t, 2*time.Minute, steps.Await(t, b, next))
	t.Logf("granted %v after holder and leader had died", time.Since(killed))
	// Lease, election of at most two rounds, lease.
	steps.TookAtMost(t, killed, 10*(2*lease+4*time.Second+lag))
	steps.PersistLeave(t, b, next)
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
		began := time.Now()
		err := call(steps.Soon(t))
		t.Logf("%s: %v after %v", what, err, time.Since(began))
		steps.Unknown(t, what+" without a leader", err)
		if what == "Enter of a free line" && (!isRefused(err) || !errors.Is(err, rpctypes.ErrNoLeader)) {
			t.Errorf("%s: %v; want it refused for now, for want of a leader", what, err)
		}
		steps.TookAtMost(t, began, 10*time.Second) // of a minute
	}
	for _, m := range []*testserver.Server{leader, follower} {
		steps.Must(t, m.Restart())
	}
	steps.PersistLeave(t, b, holder)
}
