package zklock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestEnsemble plays on three servers: each Backend is connected to any of them, so
// what one has been told another may read from a server that lags behind.
//
//verify:fault ZooKeeper | answers as the model does
//verify:fault ZooKeeper | leader changed, killed or hanging
func TestEnsemble(t *testing.T) {
	t.Parallel()
	servers := testserver.ZooKeeperEnsemble(t, 3)
	open := opener(servers...)
	drivertest.Model(t, open, drivertest.Seeds(t, 1)...)

	t.Run("a released lock is free for everybody", func(t *testing.T) {
		var views []*Backend
		for i := range 3 { // one on each server
			views = append(views, connect(t, long, servers[i]))
		}
		last := int64(0)
		for i := range 60 {
			k := steps.Hold(t, views[i%3], steps.NoWait(steps.Claim("k")))
			if k.Token <= last {
				t.Fatalf("token %d was granted after %d", k.Token, last)
			}
			last = k.Token
			steps.Leave(t, views[i%3], k)
			l, err := views[(i+1)%3].Line(t.Context(), "k")
			if err != nil || len(l.Claims) > 0 {
				t.Fatalf("after Leave the line is %+v, error %v", l, err)
			}
		}
	})

	t.Run("one inside at a time while servers die", func(t *testing.T) { oneAtATime(t, servers) })

	t.Run("a holder and its waiter outlive the leader", func(t *testing.T) { outliveTheLeader(t, servers) })
}

func oneAtATime(t *testing.T, servers []*testserver.Server) {
	var inside, last, grants atomic.Int64
	ctx, stop := context.WithCancel(t.Context()) // which a test ends that fails
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	for i := range 4 {
		b := connect(t, long, servers...)
		group.Go(func() {
			for ctx.Err() == nil {
				if err := once3(t, b, fmt.Sprint("worker ", i), &inside, &last); err == nil {
					grants.Add(1)
				}
			}
		})
	}
	for _, what := range []string{"a follower", "the leader"} {
		before := grants.Load()
		var victim *testserver.Server
		eventually(t, "somebody leads", func() bool {
			for _, s := range servers {
				if s.Leads() == (what == "the leader") {
					victim = s
					return true
				}
			}
			return false
		})
		steps.Must(t, victim.Kill())
		testserver.Eventually(t, 5*time.Minute, "the two servers that are left grant locks, after "+what+" died", func() bool {
			return grants.Load() > before+3
		})
		steps.Must(t, victim.Restart())
	}
	stop()
	group.Wait()
	t.Logf("%d grants", grants.Load())
	empty(t, servers[0])
}

func outliveTheLeader(t *testing.T, servers []*testserver.Server) {
	b, other := connect(t, long, servers...), connect(t, long, servers...)
	k, w := steps.Hold(t, b, steps.Claim("stays")), steps.Wait(t, other, steps.Claim("stays"))
	for _, s := range servers {
		if s.Leads() {
			steps.Must(t, s.Kill())
			defer func() {
				steps.OK(t, s.Restart())
			}()
		}
	}
	renews(t, b, k)
	steps.Leave(t, b, k)
	steps.Leave(t, other, steps.Granted(t, other, w))
}

// once3 takes the lock once, as the core does: what was not answered is repeated, and
// what was given up is left.
func once3(t testing.TB, b *Backend, owner string, inside, last *atomic.Int64) error {
	c := steps.Claim("shared")
	c.Owner = owner
	k, err := b.Enter(within(t, 10*time.Second), c)
	for err == nil && !k.Granted {
		k, err = b.Await(within(t, 10*time.Second), k)
	}
	if err == nil {
		steps.Same(t, "how many are inside at once", inside.Add(1), 1)
		if before := last.Swap(k.Token); before >= k.Token {
			t.Errorf("token %d was granted after %d", k.Token, before)
		}
		_, _ = b.Line(within(t, 10*time.Second), c.Key) // a request long
		inside.Add(-1)
	} else {
		k = driver.Ticket{Claim: c}
	}
	for t.Context().Err() == nil {
		out := b.Leave(within(t, 10*time.Second), k, driver.Exit{Tombstone: k.Token == 0})
		if out == nil || driver.Gone(out) {
			break
		}
	}
	return err
}
