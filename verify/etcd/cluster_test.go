package etcd_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
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
	c := &cluster{t: t, members: testserver.EtcdCluster(t, 3)}
	c.etcd = c.client(t)
	return c
}

// client knows all members.
func (c *cluster) client(t testing.TB) *clientv3.Client {
	t.Helper()
	var at []string
	for _, m := range c.members {
		at = append(at, m.Addr())
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: at, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func (c *cluster) backend(prefix string) driver.Backend {
	c.t.Helper()
	return backend(c.t, c.client(c.t), prefix)
}

// leader is the member that all agree on, and another one.
func (c *cluster) leader() (leader, follower *testserver.Server) {
	c.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); sleep(50 * time.Millisecond) {
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
func TestThreeMembers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	views := func(t *testing.T) driver.Backend { return backend(t, c.client(t), "laws/") }
	t.Run("Model", func(t *testing.T) { drivertest.Model(t, views) })

	// handed passes a lock on while f happens, and holds every answer to the laws.
	handed := func(t *testing.T, f func()) {
		t.Helper()
		prefix := newPrefix()
		a, b := c.backend(prefix), c.backend(prefix)
		holder := hold(t, a, claim("k"))
		if err := a.Leave(soon(t), holder, driver.Exit{Mark: "before"}); err != nil {
			t.Fatal(err)
		}
		holder = hold(t, a, claim("k"))
		next, last := wait(t, b, claim("k")), wait(t, a, claim("k"))
		awaited := make(chan driver.Ticket, 1) // a watch is open all the while
		failed := make(chan error, 1)
		go func() {
			for now := next; ; {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				got, err := b.Await(ctx, now)
				cancel()
				switch {
				case driver.Gone(err):
					failed <- err
					return
				case err == nil && got.Granted:
					awaited <- got
					return
				}
			}
		}()
		sleep(100 * time.Millisecond)
		f()
		began := time.Now()
		persist(t, "Renew of the holder", func(ctx context.Context) error { return a.Renew(ctx, []driver.Ticket{holder})[0] })
		persist(t, "Renew of the waiter", func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{next})[0] })
		t.Logf("renewed %v after", time.Since(began))
		select {
		case got := <-awaited:
			t.Fatalf("a waiter was granted beside the holder: %+v", got)
		case err := <-failed:
			t.Fatalf("Await: %v", err)
		default:
		}
		persist(t, "Leave", func(ctx context.Context) error { return a.Leave(ctx, holder, driver.Exit{Mark: "done"}) })
		select {
		case next = <-awaited:
		case err := <-failed:
			t.Fatalf("Await: %v", err)
		case <-time.After(20 * time.Second):
			t.Fatal("the next in line is not granted after 20s")
		}
		if next.Token <= holder.Token || next.Mark != "done" {
			t.Errorf("the next has token %d and mark %q; want one above %d, and the mark of the Leave", next.Token, next.Mark, holder.Token)
		}
		persistLeave(t, b, next)
		var held driver.Ticket
		persist(t, "Await", func(ctx context.Context) (err error) {
			for held = last; err == nil && !held.Granted; {
				held, err = a.Await(ctx, held)
			}
			return err
		})
		persistLeave(t, a, held)
	}

	t.Run("OneIsDown", func(t *testing.T) {
		_, follower := c.leader()
		handed(t, func() {
			if err := follower.Kill(); err != nil {
				t.Fatal(err)
			}
		})
		drivertest.Model(t, views, rand.Uint64())
		if err := follower.Restart(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("TheLeaderIsKilled", func(t *testing.T) {
		leader, _ := c.leader()
		handed(t, func() {
			if err := leader.Kill(); err != nil {
				t.Fatal(err)
			}
		})
		if err := leader.Restart(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("TheLeaderHangs", func(t *testing.T) {
		leader, _ := c.leader()
		handed(t, func() {
			if err := leader.Pause(); err != nil {
				t.Fatal(err)
			}
		})
		if err := leader.Continue(); err != nil {
			t.Fatal(err)
		}
	})
	// A leader that was stopped for longer than an election, and goes on, takes itself for
	// the leader for a moment, and may have leases ended that its successor has renewed. The
	// lock is then free while its holder believes in it: the holder is told at once, and
	// the next token is above its own. (The torture has seen it with etcd 3.7.3.)
	t.Run("TheLeaderComesBack", func(t *testing.T) {
		leader, _ := c.leader()
		prefix := newPrefix()
		a, b := c.backend(prefix), c.backend(prefix)
		// The leader before this one has just come back, too, and a request may be lost on it.
		var holder driver.Ticket
		first := ttl(claim("k"), lease)
		persist(t, "Enter", func(ctx context.Context) (err error) {
			holder, err = a.Enter(ctx, first)
			return err
		})
		if err := leader.Pause(); err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(3 * lease)
		for time.Now().Before(until) {
			persist(t, "Renew", func(ctx context.Context) error { return a.Renew(ctx, []driver.Ticket{holder})[0] })
			sleep(lease / 10)
		}
		if err := leader.Continue(); err != nil {
			t.Fatal(err)
		}
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
		persist(t, "Enter", func(ctx context.Context) (err error) {
			if next, err = b.Enter(ctx, noWait(claim("k"))); errors.As(err, &refused) {
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
			persistLeave(t, b, next)
		default:
			persistLeave(t, a, holder)
		}
	})
	// A change of leaders starts every lease again, so a lock that nobody renews may be
	// held for longer, but not for ever.
	t.Run("AHolderDiesWithTheLeader", func(t *testing.T) {
		leader, _ := c.leader()
		prefix := newPrefix()
		a, b := c.backend(prefix), c.backend(prefix)
		dies := ttl(claim("k"), lease) // and is not heard of again
		persist(t, "Enter", func(ctx context.Context) error { _, err := a.Enter(ctx, dies); return err })
		next := wait(t, b, claim("k"))
		if err := leader.Kill(); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		persist(t, "Await", func(ctx context.Context) (err error) {
			for err == nil && !next.Granted {
				var now driver.Ticket
				if now, err = b.Await(ctx, next); err == nil {
					next = now
				}
			}
			return err
		})
		t.Logf("granted %v after holder and leader had died", time.Since(killed))
		// Lease, election of at most two rounds, lease.
		if took := time.Since(killed); took > 2*lease+4*time.Second+lag {
			t.Errorf("the lock was held by a ghost for %v", took)
		}
		persistLeave(t, b, next)
		if err := leader.Restart(); err != nil {
			t.Fatal(err)
		}
	})
	// A member that knows no leader says so at once, also to those who write, and does not
	// keep them until their patience ends.
	t.Run("TwoAreDown", func(t *testing.T) {
		leader, follower := c.leader()
		last := c.members[slices.IndexFunc(c.members, func(m *testserver.Server) bool { return m != leader && m != follower })]
		b := backend(t, dial(t, last.Addr()), newPrefix())
		holder := hold(t, b, claim("k"))
		for _, m := range []*testserver.Server{leader, follower} {
			if err := m.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		alone := false
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && !alone; sleep(50 * time.Millisecond) {
			s, err := c.etcd.Status(soon(t), last.Addr())
			alone = err == nil && s.Leader == 0
		}
		if !alone {
			t.Fatal("it still knows a leader")
		}
		for what, call := range map[string]func(context.Context) error{
			"Enter of a free line":    func(ctx context.Context) error { _, err := b.Enter(ctx, claim("free")); return err },
			"Enter of a crowded line": func(ctx context.Context) error { _, err := b.Enter(ctx, claim("k")); return err },
			"Renew":                   func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{holder})[0] },
			"Leave":                   func(ctx context.Context) error { return b.Leave(ctx, holder, driver.Exit{}) },
			"Leave without a token": func(ctx context.Context) error {
				return b.Leave(ctx, driver.Ticket{Claim: claim("k")}, driver.Exit{})
			},
		} {
			began := time.Now()
			err := call(soon(t))
			t.Logf("%s: %v after %v", what, err, time.Since(began))
			var permanent *driver.PermanentError
			if err == nil || driver.Gone(err) || errors.As(err, &permanent) {
				t.Errorf("%s without a leader: %v; want an error that says nothing of the claim", what, err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s without a leader took %v", what, took)
			}
		}
		for _, m := range []*testserver.Server{leader, follower} {
			if err := m.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		persistLeave(t, b, holder)
	})
}
