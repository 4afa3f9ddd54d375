// Package transport carries the scripts of package redislock to Redis: one server,
// the master behind Sentinel, or the masters of a Cluster.
//
// The files, in the order in which a command goes through them:
//
//	command.go    a script, and what it does for one lock
//	transport.go  Do: direct if the server is idle and near, else Start and Wait
//	direct.go     the command goes out from its caller's goroutine
//	cluster.go    which node of a Cluster has the keys: each master has a queue
//	queue.go      commands that come while requests are under way gather into batches
//	call.go       one call of a script takes the commands of many locks
//	batch.go      calls are sent to their node, and each answer goes to its caller
//	repeat.go     a request whose connection broke is sent again
//	redirect.go   what a node says of other nodes, and of scripts it does not know
//	failover.go   what to do when a master of a Cluster hangs
//	replicas.go   WAIT behind a batch, for commands that replicas must confirm
//
// Every command may be applied twice: repeat.go sends a request again when its connection breaks
// or its answer is late. Retried says when that may have happened.
package transport

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options are those of package redislock.
type Options struct {
	NoPipeline  bool
	Replicas    int
	ReplicaWait time.Duration
}

// Transport sends commands. Its methods may be called from many goroutines at once.
type Transport struct {
	rdb        redis.UniversalClient
	noPipeline bool
	replicas   replicas
	direct     *direct     // nil where a caller's goroutine must not wait for a connection
	queue      *queue      // of the one server; nil if there are several, or no pipelines
	cluster    *cluster    // nil for one server
	unmerged   atomic.Bool // each lock has a call of its own: the server has refused others
}

// New returns a Transport that sends through rdb. It sends nothing yet.
func New(rdb redis.UniversalClient, o Options) *Transport {
	t := &Transport{
		rdb:        rdb,
		noPipeline: o.NoPipeline,
		replicas:   replicas{count: o.Replicas, patience: cmp.Or(o.ReplicaWait, time.Second)},
	}
	switch c := rdb.(type) {
	case *redis.Client:
		if !o.NoPipeline {
			t.queue = newQueue(t.send)
			t.direct = newDirect(c, max(c.Options().ReadTimeout, 0))
		}
	case *redis.ClusterClient:
		t.cluster = newCluster(c, t)
	default:
		// A Ring has several servers behind one client and does not say which: one that is
		// down would hold up the pipelines of all. Its commands go alone.
	}
	return t
}

// Do sends c and waits for the result, or until ctx ends. Then nobody knows whether c
// was applied, unless it had not been sent: it is not sent later.
func (t *Transport) Do(ctx context.Context, c *Command) Result {
	if t.direct != nil && !t.mustConfirm(c) {
		if alone := t.direct.do(ctx, t.queue, c); alone != nil {
			c.result.Answer, c.result.Err = t.result(alone, 0)
			return t.take(c)
		}
	}
	t.Start(ctx, c)
	return t.Wait(ctx, c)
}

// Start sends commands, and Wait waits for the result of one. ctx is the same for both.
func (t *Transport) Start(ctx context.Context, commands ...*Command) {
	together := make(map[*queue][]*Command)
	deadline, _ := ctx.Deadline()
	for _, c := range commands {
		c.ctx, c.deadline = ctx, deadline
		if q := t.queueFor(ctx, c); q != nil {
			together[q] = append(together[q], c)
		} else {
			go t.send([]*Command{c})
		}
	}
	for q, some := range together {
		q.enqueue(some...)
	}
}

// Wait returns the result of c, or ctx's error when ctx ends before that.
func (t *Transport) Wait(ctx context.Context, c *Command) Result {
	select {
	case <-c.done:
		return t.take(c)
	case <-ctx.Done():
	}
	// A result that is there counts, though ctx ended while another was waited for.
	select {
	case <-c.done:
		return t.take(c)
	default:
	}
	c.abandoned.Store(true)
	return Result{Err: ctx.Err()}
}

// take returns the result of c, and keeps c for another caller. In a Cluster a failover
// may still know c.
func (t *Transport) take(c *Command) Result {
	r := c.result
	if t.cluster == nil {
		*c = Command{done: c.done, argv: c.argv[:0]}
		spare.Put(c)
	}
	return r
}

// queueFor returns the queue of the node that has c's keys; nil if c goes alone.
func (t *Transport) queueFor(ctx context.Context, c *Command) *queue {
	if t.cluster == nil || t.noPipeline {
		return t.queue
	}
	return t.cluster.queueFor(ctx, c.route())
}

// node returns the client of the server that has the keys of a command.
func (t *Transport) node(ctx context.Context, route string) (redis.UniversalClient, error) {
	if t.cluster == nil {
		return t.rdb, nil
	}
	node, err := t.cluster.master(ctx, route)
	if err != nil {
		return nil, err
	}
	return node, nil
}

// Failovers is how many masters of a Cluster hang while another node stands in for them.
func (t *Transport) Failovers() int {
	if t.cluster == nil {
		return 0
	}
	return t.cluster.failoverCount()
}
