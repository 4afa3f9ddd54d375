package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/redis/go-redis/v9"
)

// A master that hangs costs its own locks, and nobody else's: neither in calls that
// go alone, nor in one that renews locks of all masters.
func TestHangingMasterCostsItsOwnLocksOnly(t *testing.T) {
	t.Parallel()
	nodes := clusterOf(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr()}, ReadTimeout: time.Hour})
	t.Cleanup(func() { rdb.Close() })
	b := closing(t, New(rdb, nil))
	dead := func(key string) bool { return int(hashSlot(b.hashName(key))) >= firstSlot(2, 3) }
	var tickets []driver.Ticket
	for i := range 60 {
		tickets = append(tickets, hold(t, b, mutex(fmt.Sprintf("held %d", i))))
	}
	must(t, nodes[2].Pause())
	defer nodes[2].Continue()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i, err := range b.Renew(ctx, tickets) {
		if dead(tickets[i].Key) != (err != nil) || driver.Gone(err) {
			t.Errorf("Renew on %q answered %v; its master hangs: %v", tickets[i].Key, err, dead(tickets[i].Key))
		}
	}
	for i := range 30 {
		c := mutex(fmt.Sprintf("new %d", i))
		limit := time.Minute
		if dead(c.Key) {
			limit = 10 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		if _, err := b.Enter(ctx, c); dead(c.Key) != (err != nil) {
			t.Errorf("Enter on %q answered %v; its master hangs: %v", c.Key, err, dead(c.Key))
		}
		cancel()
	}
}

// A client for one server that is connected to one node of a Cluster gets some names and is
// refused the others. Asking again does not change that, so no call may wait for it.
func TestOneNodeOfAClusterIsRefused(t *testing.T) {
	t.Parallel()
	nodes := clusterOf(t, 3)
	alone := closing(t, New(dial(t, nodes[0]), nil))
	whole := closing(t, New(dialCluster(t, nodes[0]), nil))
	refused := func(what string, err error) {
		t.Helper()
		if !permanent(err) || !strings.Contains(err.Error(), "redis+cluster://") {
			t.Errorf("%s answered %v; want driver.ErrPermanent, and a text that names redis+cluster://", what, err)
		}
	}
	var served []driver.Ticket
	for i := range 20 {
		c := mutex(fmt.Sprintf("name %d", i))
		if int(hashSlot(alone.hashName(c.Key))) < firstSlot(1, 3) {
			served = append(served, hold(t, alone, c))
			continue
		}
		refused("Enter", steps.ErrOf(alone.Enter(t.Context(), c)))
		refused("Line", steps.ErrOf(alone.Line(t.Context(), c.Key)))
		held := hold(t, whole, c)
		refused("Renew", renew(t, alone, held))
		refused("Leave", alone.Leave(t.Context(), held, driver.Exit{}))
		leave(t, whole, held)
	}
	if len(served) < 2 || len(served) == 20 {
		t.Errorf("the node serves %d of 20 names: this test shows nothing", len(served))
	}
	// One call would have keys of many slots. It is refused, and they go slot by slot.
	must(t, errors.Join(alone.Renew(t.Context(), served)...))
	for _, k := range served {
		leave(t, alone, k)
	}
	refused("Ping", alone.Ping(t.Context()))
	steps.Well(t, "Ping through a client of a Cluster", whole.Ping(t.Context()))
	member := closing(t, New(dial(t, nodes[0]), &Options{Member: &ballot.Membership{}}))
	c := steps.TTL(mutex("ballot"), time.Minute)
	c.NoWait, c.Ballot = true, time.Now().UnixMicro()
	refused("a member's Enter", steps.ErrOf(member.Enter(t.Context(), c)))
	refused("a member's Initialise", member.Initialise(t.Context()))
}
