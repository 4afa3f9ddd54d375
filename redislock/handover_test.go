//go:build verify

package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/redis/go-redis/v9"
)

// A master takes no writes for five seconds after its replica asks for its place. Redis 7.0
// undoes a hand-over that follows another one too soon, and forgets what the replica granted.
// Longer leases go on, waiters are served, and holders of shorter leases are told.
func TestHandOverThatFailsCostsOnlyShortLeases(t *testing.T) {
	t.Parallel()
	g := clusterGroup(t)
	const short, long, pause = 3 * time.Second, 30 * time.Second, 5 * time.Second
	m := g.cluster.Master(int(hashSlot(inOneSlot.Prefix)))
	keeper, other := client(t, g, long, inOneSlot), client(t, g, long, inOneSlot)
	kept, brief := lock(t, keeper, "kept"), lock(t, keeper, "brief", fencelock.TTL(short))
	waiter := make(chan error, 1)
	go func() {
		lease, err := other.Lock(context.Background(), "kept")
		if err == nil {
			err = lease.Release(context.Background())
		}
		waiter <- err
	}()
	eventually(t, "somebody waits", func() bool {
		l, err := keeper.Line(t.Context(), "kept")
		return err == nil && len(l.Claims) == 2
	})

	r := g.handOver(m)
	eventually(t, "the group agrees", g.settled)
	g.handOver(r)
	eventually(t, "the group agrees", g.settled)
	replica := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1})
	defer replica.Close()
	careful := New(replica, &Options{Prefix: inOneSlot.Prefix, Replicas: 1})
	defer careful.Close()
	began := time.Now()
	ask(t, r, "CLUSTER", "FAILOVER")
	// The replica's own time as a master is some milliseconds. What it grants then, nobody confirms.
	ctx, cancel := context.WithTimeout(t.Context(), pause/10)
	defer cancel()
	for ctx.Err() == nil {
		if k, err := careful.Enter(ctx, mutex("careful")); err == nil {
			leave(t, g.connect(inOneSlot), k) // it was kept
		}
	}
	late := lock(t, other, "late")
	waited := time.Since(began)
	// What Redis did, by its own account: newer ones may hold an election.
	failed := g.cluster.Replica(m) == r
	t.Logf("the hand-over failed: %v; a free lock was taken %v after it began", failed, waited)
	if failed && waited < pause-time.Second {
		t.Errorf("the master took no writes for %v; this test shows nothing", waited)
	}
	if err := brief.Release(t.Context()); (err != nil) != failed || failed && !errors.Is(err, fencelock.ErrLost) {
		t.Errorf("a lease of %v, after %v without writes, says %v", short, waited, err)
	}
	ok(t, kept.Renew(t.Context()))
	ok(t, kept.Release(t.Context()))
	ok(t, <-waiter)
	ok(t, late.Release(t.Context()))
}
