package transport

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// cluster knows which node of a Cluster a command goes to. Each node has a queue.
type cluster struct {
	client *redis.ClusterClient
	t      *Transport
	// known says that the client has a map of hash slots. Until then it asks nodes for
	// one, and that may hang.
	known atomic.Bool

	mu        sync.Mutex
	queues    map[*redis.Client]*queue
	failovers map[*redis.Client]failover // by the master that hangs
}

// maxQueues bounds the queues of nodes, of which some may have gone for ever.
const maxQueues = 1024

func newCluster(client *redis.ClusterClient, t *Transport) *cluster {
	return &cluster{
		client:    client,
		t:         t,
		queues:    make(map[*redis.Client]*queue),
		failovers: make(map[*redis.Client]failover),
	}
}

// master returns the node that has the keys of a command, or stands in for it.
func (c *cluster) master(ctx context.Context, route string) (*redis.Client, error) {
	node, err := c.client.MasterForKey(ctx, route)
	if err != nil {
		return nil, err
	}
	c.known.Store(true)
	return c.standIn(node), nil
}

// queueFor returns the queue of the node that has the keys of a command; nil if that
// cannot be said at once.
func (c *cluster) queueFor(ctx context.Context, route string) *queue {
	if !c.known.Load() {
		return nil
	}
	node, err := c.master(ctx, route)
	if err != nil {
		return nil
	}
	return c.queueOf(node)
}

func (c *cluster) queueOf(node *redis.Client) *queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[node]
	if q == nil {
		if len(c.queues) >= maxQueues {
			clear(c.queues) // a queue in use lives on until it is empty
		}
		q = newQueue(c.t.send)
		c.queues[node] = q
	}
	return q
}

// heed has the client ask for a new map if an answer says that the one it has is old.
func (c *cluster) heed(ctx context.Context, node redis.UniversalClient, calls []*call) {
	if c == nil || !slices.ContainsFunc(calls, func(c *call) bool { return isNodeGone(c.err()) }) {
		return
	}
	c.endFailoverTo(node)
	c.client.ReloadState(ctx)
}

// lateAfter is how long a node of a Cluster may take to answer before another is tried.
const lateAfter = 500 * time.Millisecond

// watch looks for another master while a batch is late, again and again until stop is
// called. go-redis asks for a new map when a node says MOVED, and a node that is dead does not.
func (c *cluster) watch(b *batch) (stop func()) {
	if c == nil {
		return func() {}
	}
	stopped := make(chan struct{})
	go func() {
		for {
			select {
			case <-time.After(lateAfter):
				c.client.ReloadState(context.Background())
				c.failOver(b)
			case <-stopped:
				return
			}
		}
	}()
	return func() { close(stopped) }
}
