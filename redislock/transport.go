package redislock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/redislock/internal/reply"
	"github.com/redis/go-redis/v9"
)

const (
	// nearTimeout is how long a caller's goroutine waits for an answer.
	nearTimeout = 100 * time.Millisecond
	// nearTime is how soon a server answers that is asked from there.
	nearTime = nearTimeout / 4
	// lateAfter is how long a node of a Cluster may take to answer at first: it may hang, and another take its place.
	lateAfter = 500 * time.Millisecond
)

// transport carries requests to Redis. While fewer than four are under way to a server, a request goes out
// from its caller's goroutine. Otherwise it waits in a queue for its server until a batch goes out, in which
// requests of one script share a call.
//
// A request may be applied twice: exec sends it again when its connection breaks or its answer is late,
// and says so in repeated.
type transport struct {
	rdb      redis.UniversalClient
	cluster  *redis.ClusterClient // nil for one server
	role     *role                // of one server; replicas of a Cluster redirect
	apart    atomic.Bool          // each call is for one lock: a Cluster, or a server that refuses others
	replicas int                  // of each master, of which a majority must confirm; 0: none
	patience time.Duration        // how long they may take
	known    atomic.Bool          // the Cluster has told where its hash slots are

	mu     sync.Mutex
	queues map[redis.UniversalClient]*queue // of each server
	spares map[string]*redis.Client         // by address
}

func newTransport(rdb redis.UniversalClient, o *Options) *transport {
	cluster, _ := rdb.(*redis.ClusterClient)
	t := &transport{
		rdb:      rdb,
		cluster:  cluster,
		replicas: o.Replicas,
		patience: cmp.Or(o.ReplicaWait, time.Second),
		queues:   make(map[redis.UniversalClient]*queue),
		spares:   make(map[string]*redis.Client),
	}
	t.apart.Store(cluster != nil)
	if _, one := rdb.(*redis.Client); one && o.Member == nil { // the scripts of a member ask it themselves
		t.role = &role{}
	}
	return t
}

// do sends r and waits for its answer, or until ctx ends. Then nobody knows whether r was applied, unless it
// had not been sent: it is not sent later.
func (t *transport) do(ctx context.Context, r *request) *request {
	if q := t.queueFor(ctx, r); q != nil && q.fast.Load() && !t.mustConfirm(r) && !t.role.due() && t.direct(ctx, q, r) {
		return r
	}
	t.start(ctx, r)
	return t.wait(ctx, r)
}

// direct sends r from its caller's goroutine: go-redis does not return from a connection that hangs when ctx
// ends, so it waits for a short time only. It reports whether r has its result; if not, r has to go through
// the queue.
func (t *transport) direct(ctx context.Context, q *queue, r *request) bool {
	if r.script == renewScript && poolIsFull(q.near) || !q.begin() { // to look costs every request some time
		return false
	}
	defer q.end()
	c := &call{requests: []*request{r}}
	c.prepare(ctx)
	began := time.Now()
	err := q.near.Process(ctx, c)
	if time.Since(began) > nearTime {
		q.fast.Store(false)
	}
	broken := isBroken(err)
	if broken {
		t.role.forget()
	}
	if reply.Begins(unapplied, c.text()) || broken && driverutil.Ended(ctx) == nil {
		r.repeated = broken && wasSent(err)
		return false
	}
	c.finish(nil)
	return true
}

// start sends requests, and wait waits for the answer to one. ctx is the same for both.
func (t *transport) start(ctx context.Context, requests ...*request) {
	together := make(map[*queue][]*request)
	for _, r := range requests {
		r.ctx, r.done = ctx, make(chan struct{})
		if q := t.queueFor(ctx, r); q != nil && !r.repeated { // what hung may hang again, and others with it
			together[q] = append(together[q], r)
		} else {
			go t.send([]*request{r})
		}
	}
	for q, some := range together {
		q.add(some...)
	}
}

// wait waits until r has its answer, or ctx ends. An answer that is there counts though ctx has ended. It
// returns r, or one in its place with the error of ctx.
func (t *transport) wait(ctx context.Context, r *request) *request {
	select {
	case <-r.done:
		return r
	case <-ctx.Done():
	}
	select {
	case <-r.done:
		return r
	default:
	}
	r.left.Store(true)
	return &request{err: ctx.Err()}
}

// queueFor returns the queue of the server that has the keys of r, or nil if r goes alone. While a Cluster
// has not told where its slots are, to ask may hang.
func (t *transport) queueFor(ctx context.Context, r *request) *queue {
	if t.cluster != nil && !t.known.Load() {
		return nil
	}
	server, err := t.home(ctx, r)
	if err != nil {
		return nil
	}
	return t.queueOf(server)
}

func (t *transport) queueOf(server redis.UniversalClient) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[server]
	if q == nil {
		q = &queue{send: t.send}
		if one, ok := server.(*redis.Client); ok {
			q.near = within(one, nearTimeout)
		}
		t.queues[server] = q
	}
	return q
}

// within returns the client of a server with a shorter timeout.
func within(server *redis.Client, limit time.Duration) *redis.Client {
	if timeout := server.Options().ReadTimeout; timeout > 0 {
		limit = min(limit, timeout)
	}
	return server.WithTimeout(limit)
}

// home returns the server that has the keys of r.
func (t *transport) home(ctx context.Context, r *request) (redis.UniversalClient, error) {
	if t.cluster == nil {
		return t.rdb, nil
	}
	node, err := t.cluster.MasterForKey(ctx, r.key)
	if err != nil {
		return nil, err
	}
	t.known.Store(true)
	return node, nil
}

// send sends requests of one server. It returns when each has its answer.
func (t *transport) send(requests []*request) {
	ctx, cancel := lastDeadline(requests)
	defer cancel()
	t.exec(ctx, t.join(requests))
}

// exec sends calls of one server, and again as next says, and finishes each when it is done.
func (t *transport) exec(ctx context.Context, calls []*call) {
	for attempt := 0; ; attempt++ {
		if calls = awaited(calls); len(calls) == 0 {
			return
		}
		server, err := t.home(ctx, calls[0].requests[0])
		if err != nil {
			for _, c := range calls {
				c.SetErr(err)
			}
			t.finish(calls...)
			return
		}
		t.sendOnce(ctx, server, calls, attempt)
		var again []*call
		rest := false
		for _, c := range calls {
			next, pauses := t.next(ctx, c, attempt)
			if next == nil {
				t.finish(c)
			}
			again = append(again, next...)
			rest = rest || pauses
		}
		if rest && !pause(ctx, attempt) {
			t.finish(again...)
			return
		}
		calls = again
	}
}

// finish gives the requests of calls what came back for them.
func (t *transport) finish(calls ...*call) {
	for _, c := range calls {
		c.finish(t.confirmed(c.wait))
	}
}

// sendOnce sends calls to their server, or to the node that they are to ask.
func (t *transport) sendOnce(ctx context.Context, home redis.UniversalClient, calls []*call, attempt int) {
	some := make(map[string][]*call)
	for _, c := range calls {
		some[c.ask] = append(some[c.ask], c)
	}
	for addr, calls := range some {
		one, ok := home.(*redis.Client)
		if !ok {
			pipeline(ctx, home, calls, t.waitFor(ctx, calls, 0))
			continue
		}
		if addr != "" || poolIsFull(one) {
			one = t.spare(one, cmp.Or(addr, one.Options().Addr))
		}
		if err := t.role.check(ctx, one, calls[0].requests[0].key); err != nil {
			for _, c := range calls {
				c.SetErr(unsentError{err})
			}
			continue
		}
		if t.cluster != nil {
			one = within(one, max(lateAfter<<attempt, 2*t.mustWait(calls)))
		}
		pipeline(ctx, one, calls, t.waitFor(ctx, calls, one.Options().ReadTimeout))
	}
}

// pipeline sends calls together, and WAIT behind them if that is not nil. For pipelines go-redis opens connections
// beside those of the pool, so a call that is alone is not one.
func pipeline(ctx context.Context, server redis.UniversalClient, calls []*call, wait *redis.Cmd) {
	for _, c := range calls {
		c.prepare(ctx)
		c.wait = wait
	}
	if len(calls) == 1 && wait == nil && calls[0].ask == "" {
		_ = server.Process(ctx, calls[0])
		return
	}
	_, err := server.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range calls {
			if c.ask != "" {
				p.Do(ctx, "asking")
			}
			_ = p.Process(ctx, c)
		}
		if wait != nil {
			_ = p.Process(ctx, wait)
		}
		return nil
	})
	for _, c := range calls {
		if c.Err() == nil && c.Val() == nil { // the server has refused the login
			c.SetErr(err)
		}
	}
}

// unapplied is how a server answers that has applied nothing, and says what to do instead.
var unapplied = []string{"NOSCRIPT", "MOVED ", "ASK "}

// next returns what takes the place of a call that has no result yet, and whether there is a pause before it.
// It returns nil for a call that is done.
func (t *transport) next(ctx context.Context, c *call, attempt int) (again []*call, pauses bool) {
	err, text := c.failure(), c.text()
	if isBroken(err) {
		t.role.forget()
	}
	switch {
	case strings.HasPrefix(text, "NOSCRIPT"):
		c.inFull = true
		return []*call{c}, false
	case strings.HasPrefix(text, "CROSSSLOT") && len(c.requests) > 1:
		t.apart.Store(true)
		return t.join(c.requests), false
	case attempt >= t.repeats():
		return nil, false
	case t.cluster != nil && strings.HasPrefix(text, "ASK "):
		c.ask = text[strings.LastIndexByte(text, ' ')+1:]
		return []*call{c}, false
	case isBroken(err) || t.cluster != nil && strings.HasPrefix(text, "MOVED "):
		for _, r := range c.requests {
			r.repeated = r.repeated || isBroken(err) && wasSent(err)
		}
		if c.ask = ""; t.cluster != nil {
			t.cluster.ReloadState(ctx)
		}
		return []*call{c}, true
	}
	return nil, false
}

// repeats is how often the client asks for a request to be sent again.
func (t *transport) repeats() int {
	switch c := t.rdb.(type) {
	case *redis.Client:
		return max(c.Options().MaxRetries, 0)
	case *redis.ClusterClient:
		return 2 * max(c.Options().MaxRedirects, 0) // a failover takes seconds
	}
	return 0
}

// pause waits before a request is sent again, and reports whether there is time for that.
func pause(ctx context.Context, attempt int) bool {
	const first, longest = 8 * time.Millisecond, 512 * time.Millisecond
	d := min(first<<attempt, longest)
	select {
	case <-time.After(d/2 + rand.N(d/2)):
		return driverutil.Ended(ctx) == nil
	case <-ctx.Done():
		return false
	}
}

// awaited leaves out the requests whose callers have gone, and calls that have no others: a Leave may have followed an
// Enter.
func awaited(calls []*call) []*call {
	return slices.DeleteFunc(calls, func(c *call) bool {
		c.requests = slices.DeleteFunc(c.requests, func(r *request) bool { return r.left.Load() })
		return len(c.requests) == 0
	})
}

// lastDeadline returns the context of a batch. It ends with the latest deadline, so that no caller cuts off
// another.
func lastDeadline(requests []*request) (context.Context, context.CancelFunc) {
	if len(requests) == 1 {
		return requests[0].ctx, func() {}
	}
	var end time.Time
	for _, r := range requests {
		d, ok := r.ctx.Deadline()
		if !ok {
			return context.Background(), func() {}
		}
		if d.After(end) {
			end = d
		}
	}
	return context.WithDeadline(context.Background(), end)
}

// isBroken reports whether no answer came because the connection broke, or was too slow.
func isBroken(err error) bool {
	return err != nil && !errors.As(err, new(redis.Error)) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// wasSent reports whether a request that failed with err may have reached the server.
func wasSent(err error) bool {
	var op *net.OpError
	return !errors.As(err, new(unsentError)) && !(errors.As(err, &op) && op.Op == "dial") &&
		!errors.Is(err, redis.ErrPoolTimeout) && !errors.Is(err, redis.ErrPoolExhausted)
}
