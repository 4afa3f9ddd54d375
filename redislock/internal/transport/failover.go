package transport

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// A master of a Cluster that hangs costs each request the client's ReadTimeout, three seconds
// by default, or twice that. So while a batch is late, its commands are tried at the node that
// may have become master. A replica that has not answers MOVED, and nothing has happened.

// failover says which node stands in for a master that hangs.
type failover struct {
	to  *redis.Client
	end time.Time
}

// maxFailover is until go-redis must have a newer map: it asks after ten seconds, and
// the node that hangs may be the one it asks.
const maxFailover = 20 * time.Second

// failOver sends the calls of a batch that is late to the node that may have taken
// the place of its node. Calls that get no answer there are left to the batch.
func (c *cluster) failOver(b *batch) {
	if !b.mu.TryLock() {
		return // the batch is sending them again itself
	}
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lateAfter)
	defer cancel()
	var late, tried []*call
	for _, c := range b.unanswered() {
		// A new master may not know the script.
		if again := (&call{commands: c.commands, keys: c.keys, inFull: true}); again.again(ctx) {
			late, tried = append(late, c), append(tried, again)
		}
	}
	if len(tried) == 0 {
		return
	}
	route := tried[0].commands[0].route()
	to := c.candidate(ctx, b.node, route)
	if to == nil {
		return
	}
	c.t.exec(ctx, to.WithTimeout(lateAfter), false, tried)
	found := false
	for i, again := range tried {
		// Most errors are of the node and not of a lock. Where too few replicas have
		// confirmed, they may not have found their new master yet.
		if again.err() != nil || c.t.mustWait(again) && c.t.replicas.confirmed(again.wait) != nil {
			continue
		}
		late[i].answered, found = true, true
		c.t.finish(again, true)
	}
	if found {
		c.begin(ctx, route, to)
	}
}

// candidate returns the node that may have taken the place of another: the master by a
// newer map, or else a replica.
func (c *cluster) candidate(ctx context.Context, hangs redis.UniversalClient, route string) *redis.Client {
	if node, err := c.master(ctx, route); err == nil && node != hangs {
		return node
	}
	if node, err := c.client.SlaveForKey(ctx, route); err == nil && node != hangs {
		return node
	}
	return nil
}

// begin has everything for a master, by the client's map, sent to another node, until
// the map is newer or that node says otherwise. Commands that wait for the master move.
func (c *cluster) begin(ctx context.Context, route string, to *redis.Client) {
	hangs, err := c.client.MasterForKey(ctx, route)
	if err != nil || hangs == to {
		return
	}
	c.mu.Lock()
	c.failovers[hangs] = failover{to, time.Now().Add(maxFailover)}
	stuck := c.queues[hangs]
	c.mu.Unlock()
	if stuck == nil {
		return
	}
	c.queueOf(to).enqueue(stuck.drain()...)
}

// standIn returns the node that stands in for a master; the master itself as a rule.
func (c *cluster) standIn(master *redis.Client) *redis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.failovers[master]
	if !ok {
		return master
	}
	if time.Now().After(f.end) {
		delete(c.failovers, master)
		return master
	}
	return f.to
}

// endFailoverTo ends a failover to a node that does not have what was asked for.
func (c *cluster) endFailoverTo(node redis.UniversalClient) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for master, f := range c.failovers {
		if f.to == node {
			delete(c.failovers, master)
		}
	}
}

// failoverCount is how many masters have a node that stands in for them.
func (c *cluster) failoverCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failovers)
}
