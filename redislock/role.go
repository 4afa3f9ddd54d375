package redislock

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/redislock/internal/reply"
)

// roleAge is how long the role that a server reported is believed.
const roleAge = time.Second

// role guards against a replica whose replica-read-only is no. It runs scripts, and grants what its master has
// granted to another client. The response to HELLO has the role, and every user may send it. HELLO goes out ahead of a
// request: of the first one, of the first after a connection broke, and of one in a second, because REPLICAOF cuts no
// connection. Redis before 6.2 refuses a HELLO without arguments. Then the role stays unknown, and requests are sent.
type role struct {
	asked  atomic.Pointer[time.Time] // when the server last reported that it is no replica; nil: not since it was one
	master atomic.Bool               // it has been a master
}

const replicaText = "READONLY this server is a replica that takes writes"

// refuseReplica fails on every replica: with the server's error if it takes no writes. At such an error go-redis
// closes the connection, and the next one may lead to the master.
const refuseReplica = "redis.call('HDEL', KEYS[1], '') return redis.error_reply('" + replicaText + "')"

// due reports whether the server has to be asked.
func (r *role) due() bool {
	if r == nil {
		return false
	}
	asked := r.asked.Load()
	return asked == nil || time.Since(*asked) > roleAge
}

// forget has the server asked before the next request.
func (r *role) forget() {
	if r != nil {
		r.asked.Store(nil)
	}
}

// check asks the server for its role, if that is due, and fails if it is a replica. key is one of a lock.
func (r *role) check(ctx context.Context, server *redis.Client, key string) error {
	if !r.due() {
		return nil
	}
	isReplica, err := replicaNow(ctx, server)
	if isReplica {
		r.forget()
		refused := server.Process(ctx, &call{Cmd: *redis.NewCmd(ctx, eval, refuseReplica, 1, key)})
		if !strings.Contains(reply.Text(refused), replicaText) {
			return refused
		}
		// A failover may have made it a master before it ran the script, which masters run as well.
		if isReplica, err = replicaNow(ctx, server); isReplica {
			return refused
		}
	}
	if text := reply.Text(err); err != nil && (text == "" || reply.Begins(reply.MayChange, text)) {
		return err
	}
	now := time.Now() // it is a master, or does not know HELLO
	r.asked.Store(&now)
	r.master.Store(true)
	return nil
}

// replicaNow reports whether the server says that it is a replica.
func replicaNow(ctx context.Context, server *redis.Client) (bool, error) {
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
	_ = server.Process(ctx, hello)
	state, err := hello.Result()
	return err == nil && state["role"] == "replica", err
}

// wasMaster reports whether the server, or one that had its address, may have been a master.
func (r *role) wasMaster() bool { return r == nil || r.master.Load() }

// unsentError is why a call was not sent.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }
