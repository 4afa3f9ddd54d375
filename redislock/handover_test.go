package redislock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/redis/go-redis/v9"
)

// A master takes no writes for five seconds after its replica asks for its place. Redis 7.0
// undoes a hand-over that follows another one too soon, and forgets what the replica granted.
// Longer leases go on, waiters are served, and holders of shorter leases are told.
func TestHandOverThatFailsCostsOnlyShortLeases(t *testing.T) {
	t.Parallel()
	g := clusterGroup(t)
	const short, long, pause = 3 * time.Second, 15 * time.Second, 5 * time.Second
	m := g.cluster.Master(int(hashSlot(inOneSlot.Prefix)))
	keeper := client(t, g, long, inOneSlot)
	kept := lock(t, keeper, "kept")
	brief := lock(t, keeper, "brief", fencelock.TTL(short))
	type result struct {
		lease *fencelock.Lease
		err   error
	}
	waiter, late := make(chan result, 1), make(chan result, 1)
	lock := func(c *fencelock.Client, key string, got chan result) {
		lease, err := c.Lock(context.Background(), key)
		got <- result{lease, err}
	}
	other := client(t, g, long, inOneSlot)
	go lock(other, "kept", waiter)
	eventually(t, "somebody waits", func() bool {
		l, err := keeper.Line(t.Context(), "kept")
		return err == nil && len(l.Claims()) == 2
	})

	r := g.handOver(m)
	eventually(t, "the group agrees", g.settled)
	g.handOver(r)
	eventually(t, "the group agrees", g.settled)
	bold, careful := only(t, r.Addr(), inOneSlot), only(t, r.Addr(), &Options{Prefix: inOneSlot.Prefix, Replicas: 1})
	began := time.Now()
	ask(t, r, "CLUSTER", "FAILOVER")
	// Its own time as a master is some milliseconds.
	granted := map[string][]driver.Ticket{}
	var unsure []driver.Claim
	ctx, cancel := context.WithTimeout(t.Context(), pause/10)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ {
		for name, b := range map[string]*Backend{"bold": bold, "careful": careful} {
			c := mutex(fmt.Sprint(name, i))
			if k, err := b.Enter(ctx, c); err == nil {
				granted[name] = append(granted[name], k)
			} else if ctx.Err() != nil {
				unsure = append(unsure, c)
			}
		}
	}
	go lock(other, "late", late)
	l := <-late
	waited := time.Since(began)
	if l.err != nil {
		t.Fatalf("Lock of a free lock while the master took no writes: %v", l.err)
	}
	// What Redis did, by its own account: newer ones may hold an election.
	failed := g.cluster.Replica(m) == r
	t.Logf("the hand-over failed: %v; a free lock was taken %v after it began; the replica granted %d locks meanwhile, %d with confirmation",
		failed, waited, len(granted["bold"]), len(granted["careful"]))
	if failed && waited < pause-time.Second {
		t.Errorf("the master took no writes for %v; this test shows nothing", waited)
	}
	if waited > pause+2*time.Second {
		t.Errorf("a free lock could not be taken for %v, want at most the %v that the master takes no writes", waited, pause)
	}
	switch err := brief.Err(); {
	case failed && !errors.Is(err, fencelock.ErrLost):
		t.Errorf("a lease of %v, after %v without writes, says %v", short, waited, err)
	case !failed && err != nil:
		t.Errorf("a lease of %v was lost: %v", short, err)
	}
	if err := brief.Release(t.Context()); (err != nil) != failed {
		t.Errorf("Release of the short lease: %v", err)
	}
	if err := kept.Renew(t.Context()); err != nil {
		t.Errorf("a lease of %v cannot be renewed after %v without writes: %v", long, waited, err)
	}
	ok(t, kept.Release(t.Context()))
	w := <-waiter
	if w.err != nil {
		t.Fatalf("the waiter: %v", w.err)
	}
	for _, lease := range []*fencelock.Lease{w.lease, l.lease} {
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release of %q: %v", lease.Key(), err)
		}
	}
	// A replica that has forgotten its grants has them confirmed by nobody.
	b := g.connect(inOneSlot)
	for name, tickets := range granted {
		for _, k := range tickets {
			err := renewOne(b, k)
			if err != nil && !driver.Gone(err) || failed && name == "careful" && err != nil {
				t.Errorf("Renew of %s %q: %v", name, k.Key, err)
			}
			if err == nil {
				leave(t, b, k)
			}
		}
	}
	for _, c := range unsure { // the end of the time may have cut off the answer
		leave(t, b, hold(t, b, c))
	}
}

// only opens a backend that knows one server, and asks nobody else.
func only(t *testing.T, addr string, o *Options) *Backend {
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { rdb.Close() })
	return closing(t, New(rdb, o))
}
