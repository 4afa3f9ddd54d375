package redislock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// A master that hangs costs its own locks, and nobody else's: neither in calls that
// go alone, nor in one that renews locks of all masters.
func TestHangingMasterCostsItsOwnLocksOnly(t *testing.T) {
	t.Parallel()
	nodes := clusterOf(t, 3)
	b := closing(t, New(dialCluster(t, nodes[0]), nil))
	dead := func(key string) bool { return int(hashSlot(b.recordName(key))) >= firstSlot(2, 3) }
	var tickets []driver.Ticket
	for i := range 60 {
		tickets = append(tickets, hold(t, b, mutex(fmt.Sprintf("held %d", i))))
	}
	must(t, nodes[2].Pause())
	defer nodes[2].Continue()

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for i, err := range b.Renew(ctx, tickets) {
		if dead(tickets[i].Key) != (err != nil) || driver.Gone(err) {
			t.Errorf("Renew on %q answered %v; its master hangs: %v", tickets[i].Key, err, dead(tickets[i].Key))
		}
	}
	for i := range 30 {
		c := mutex(fmt.Sprintf("new %d", i))
		limit := 10 * time.Second
		if dead(c.Key) {
			limit = 10 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		start := time.Now()
		if _, err := b.Enter(ctx, c); dead(c.Key) != (err != nil) {
			t.Errorf("Enter on %q answered %v; its master hangs: %v", c.Key, err, dead(c.Key))
		}
		tookAtMost(t, start, time.Second)
		cancel()
	}
}

// carries waits until a message that is published at one node is heard at each other one.
// Valkey throws away what is the first that a node has to tell another.
func carries(t *testing.T, nodes []*testserver.Server) {
	t.Helper()
	for _, at := range nodes {
		probe := dial(t, at).Subscribe(t.Context(), "probe")
		defer probe.Close()
		must(t, errOf(probe.Receive(t.Context())))
		for _, from := range nodes {
			eventually(t, "a message goes from "+from.Addr()+" to "+at.Addr(), func() bool {
				ask(t, from, "PUBLISH", "probe", from.Addr())
				select {
				case m := <-probe.Channel():
					return m.Payload == from.Addr()
				case <-time.After(50 * time.Millisecond):
					return false
				}
			})
		}
	}
}

// A waiter subscribes at any node, and the push comes from the lock's own.
func TestPushesCrossTheCluster(t *testing.T) {
	nodes := clusterOf(t, 3)
	carries(t, nodes)
	holder, waiter := closing(t, New(dialCluster(t, nodes[0]), nil)), onlyPushed(closing(t, New(dialCluster(t, nodes[1]), nil)))
	for i := range 12 {
		key := fmt.Sprintf("key %d", i)
		held := hold(t, holder, mutex(key))
		k := wait_(t, waiter, mutex(key))
		subscribed(t, waiter)
		must(t, errOf(waiter.read(t.Context(), k)))
		leave(t, holder, held)
		granted(t, waiter, k)
		leave(t, waiter, k)
	}
}
