package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicas says how many replicas a master has, and how long they may take to confirm.
type replicas struct {
	count    int // 0: none has to confirm
	patience time.Duration
}

// majority is how many replicas have to confirm.
func (r replicas) majority() int { return r.count/2 + 1 }

// mustWait reports whether replicas have to confirm a command of the call.
func (t *Transport) mustWait(c *call) bool { return slices.ContainsFunc(c.commands, t.mustConfirm) }

// mustConfirm reports whether replicas have to confirm a command.
func (t *Transport) mustConfirm(c *Command) bool { return t.replicas.count > 0 && c.Durable }

// WaitsForReplicas reports whether replicas have to confirm Durable commands.
func (t *Transport) WaitsForReplicas() bool { return t.replicas.count > 0 }

// waitFor returns the WAIT that follows calls; nil if replicas need not confirm any. It
// asks how many replicas know of what this connection has written.
//
// An answer that comes later than the client listens is lost. To Redis zero is for ever.
func (t *Transport) waitFor(ctx context.Context, node redis.UniversalClient, calls []*call) *redis.Cmd {
	one, ok := node.(*redis.Client)
	if !ok || !slices.ContainsFunc(calls, t.mustWait) {
		return nil
	}
	limit := t.replicas.patience
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	if listens := one.Options().ReadTimeout; listens > 0 {
		limit = min(limit, listens/2)
	}
	return redis.NewCmd(ctx, "wait", t.replicas.majority(), max(limit.Milliseconds(), 1))
}

// confirmed returns nil if a WAIT counted enough replicas.
func (r replicas) confirmed(wait *redis.Cmd) error {
	if wait == nil {
		return errors.New("the replicas were not asked whether they know of it")
	}
	by, err := wait.Int()
	switch {
	case err != nil:
		return fmt.Errorf("the replicas could not be asked whether they know of it: %w", err)
	case by < r.majority():
		return fmt.Errorf("%d of %d replicas confirmed it in time, and %d must: "+
			"check that they run and follow their master", by, r.count, r.majority())
	}
	return nil
}
