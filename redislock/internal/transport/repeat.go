package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/redis/go-redis/v9"
)

// request is a command of go-redis that this package sends again, and go-redis does not: go-redis
// does not say how often, and it also repeats what the server has refused.
type request struct {
	redis.Cmd
	repeated bool // an earlier copy may have been applied, or may still be
}

// NoRetry keeps go-redis from sending the request again.
func (r *request) NoRetry() bool { return true }

// isBroken reports whether no answer came because the connection broke, or was too slow.
func isBroken(err error) bool {
	return err != nil && !errors.As(err, new(redis.Error)) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// wasSent reports whether a request that failed with err may have reached the server.
func wasSent(err error) bool {
	var op *net.OpError
	return !(errors.As(err, &op) && op.Op == "dial") &&
		!errors.Is(err, redis.ErrPoolTimeout) && !errors.Is(err, redis.ErrPoolExhausted)
}

// process sends a call by itself, once.
func (c *call) process(ctx context.Context, node redis.UniversalClient) error {
	err := node.Process(ctx, c.cmd)
	if isBroken(err) && wasSent(err) {
		c.cmd.repeated = true // if it is sent again
	}
	return err
}

// repeats returns how often a client sends a request again.
func repeats(node redis.UniversalClient) int {
	switch c := node.(type) {
	case *redis.Client:
		return c.Options().MaxRetries
	case *redis.Ring:
		return c.Options().MaxRetries
	}
	return 0
}

// exec sends calls to one node in one request, and again if its connection breaks.
func (t *Transport) exec(ctx context.Context, node redis.UniversalClient, asking bool, calls []*call) {
	for attempt := range max(repeats(node), 0) + 1 {
		if attempt > 0 && !pause(ctx, attempt) || !t.sendOnce(ctx, node, asking, calls) {
			return
		}
	}
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
