package redislock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// A master that hangs costs its own locks, and nobody else's: neither in calls that
// go alone, nor in one that renews locks of all masters.
func TestHangingMasterCostsItsOwnLocksOnly(t *testing.T) {
	t.Parallel()
	nodes := clusterOf(t, 3)
	b := closing(t, New(dialCluster(t, nodes[0]), nil))
	dead := func(key string) bool { return int(hashSlot(b.hashName(key))) >= firstSlot(2, 3) }
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
	served := 0
	for i := range 20 {
		c := mutex(fmt.Sprintf("name %d", i))
		if int(hashSlot(alone.hashName(c.Key))) < firstSlot(1, 3) {
			leave(t, alone, hold(t, alone, c))
			served++
			continue
		}
		refused("Enter", errOf(alone.Enter(t.Context(), c)))
		refused("Line", errOf(alone.Line(t.Context(), c.Key)))
		held := hold(t, whole, c)
		refused("Renew", renew(t, alone, held))
		refused("Leave", alone.Leave(t.Context(), held, driver.Exit{}))
		leave(t, whole, held)
	}
	if served == 0 || served == 20 {
		t.Errorf("the node serves %d of 20 names: this test shows nothing", served)
	}
	refused("Ping", alone.Ping(t.Context()))
	steps.Well(t, "Ping through a client of a Cluster", whole.Ping(t.Context()))
	member := closing(t, New(dial(t, nodes[0]), &Options{Member: &ballot.Membership{}}))
	c := mutex("ballot")
	c.NoWait, c.Ballot = true, time.Now().UnixMicro()
	refused("a member's Enter", errOf(member.Enter(t.Context(), c)))
	refused("a member's Initialise", member.Initialise(t.Context()))

	e, err := alone.Examine(t.Context(), time.Minute)
	must(t, err)
	if !slices.ContainsFunc(e.Findings, func(f health.Finding) bool {
		return f.Code == "redis-cluster-node" && f.Severity == health.Error
	}) {
		t.Errorf("the doctor finds %+v; want redis-cluster-node", e.Findings)
	}
	if e, err := whole.Examine(t.Context(), time.Minute); err != nil || strings.Contains(fmt.Sprint(e), "redis-cluster-node") {
		t.Errorf("on the whole Cluster the doctor finds %+v, error %v", e.Findings, err)
	}
}
