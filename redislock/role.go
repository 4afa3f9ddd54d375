package redislock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// roleAge is how long the role that a server reported is believed.
const roleAge = time.Second

// role guards against a replica whose replica-read-only is no. It runs scripts, and grants what its master has
// granted to another client. The response to HELLO has the role, and every user may send it. Before the first
// request, and after a connection broke, HELLO is sent alone. Later it goes out ahead of a request, in the same
// round trip, at most once a second: REPLICAOF cuts no connection. Redis before 6.2 refuses a HELLO without
// arguments. Then the role stays unknown, and requests are sent.
type role struct {
	asked   atomic.Pointer[time.Time] // when the server last reported its role; nil: ask it first
	replica atomic.Bool               // what it reported
	master  atomic.Bool               // it has been a master
}

// replicaError is why nothing counts that a replica has done. It has the code of a read-only one.
type replicaError struct{}

const replicaText = "READONLY this server is a replica that takes writes"

func (replicaError) Error() string { return replicaText }

// RedisError makes it an error of the server.
func (replicaError) RedisError() {}

// due reports whether the server has to be asked.
func (r *role) due() bool {
	if r == nil {
		return false
	}
	asked := r.asked.Load()
	return asked == nil || r.replica.Load() || time.Since(*asked) > roleAge
}

// forget has the server asked before the next request.
func (r *role) forget() {
	if r != nil {
		r.asked.Store(nil)
	}
}

// hello makes the request for the role.
func hello(ctx context.Context) *call { return &call{Cmd: *redis.NewCmd(ctx, "hello")} }

// refuseReplica fails on every replica: with the server's error if it takes no writes. At such an error go-redis
// closes the connection, and the next one may lead to the master.
const refuseReplica = "redis.call('HDEL', KEYS[1], '') return redis.error_reply('" + replicaText + "')"

// first asks the server alone if its role is not known, or was that of a replica. key is one of a lock.
func (r *role) first(ctx context.Context, server *redis.Client, key string) error {
	if r == nil || r.asked.Load() != nil && !r.replica.Load() {
		return nil
	}
	c := hello(ctx)
	err := server.Process(ctx, c)
	if r.read(c); r.replica.Load() {
		return server.Process(ctx, &call{Cmd: *redis.NewCmd(ctx, eval, refuseReplica, 1, key)})
	}
	if text := c.text(); text != "" && !begins(refusedForNow, text) {
		return nil // it does not know HELLO
	}
	return err
}

// read reads the response to HELLO.
func (r *role) read(c *call) {
	if c.Err() != nil && (c.text() == "" || begins(refusedForNow, c.text())) {
		return // it is still to be asked
	}
	replica := false
	switch v := c.Val().(type) {
	case map[any]any: // RESP3
		replica = v["role"] == "replica"
	case []any:
		for i := 0; i+1 < len(v); i += 2 {
			replica = replica || v[i] == "role" && v[i+1] == "replica"
		}
	}
	now := time.Now()
	r.asked.Store(&now)
	r.replica.Store(replica)
	if !replica {
		r.master.Store(true)
	}
}

// wasMaster reports whether the server, or one that had its address, may have been a master.
func (r *role) wasMaster() bool { return r == nil || r.master.Load() }

// refuses returns why nothing counts that the server has done, or nil.
func (r *role) refuses() error {
	if r != nil && r.replica.Load() {
		return replicaError{}
	}
	return nil
}

// pipelineToMaster is pipeline, and asks the server for its role if that is due.
func (t *transport) pipelineToMaster(ctx context.Context, server *redis.Client, calls []*call, wait *redis.Cmd) {
	if err := t.role.first(ctx, server, calls[0].requests[0].key); err != nil {
		for _, c := range calls {
			c.SetErr(unsentError{err})
		}
		return
	}
	if !t.role.due() {
		pipeline(ctx, server, nil, calls, wait)
		return
	}
	conn := server.Conn() // of the pool for single requests
	defer conn.Close()
	ahead := hello(ctx)
	pipeline(ctx, conn, ahead, calls, wait)
	t.role.read(ahead)
}

// unsentError is why a call was not sent.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }
