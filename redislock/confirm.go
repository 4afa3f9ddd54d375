package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

func (t *transport) mustConfirm(r *request) bool { return t.replicas > 0 && r.durable }

func (t *transport) majority() int { return t.replicas/2 + 1 }

// mustWait is how long replicas may take to confirm calls; 0 if none need to.
func (t *transport) mustWait(calls []*call) time.Duration {
	if slices.ContainsFunc(calls, func(c *call) bool { return slices.ContainsFunc(c.requests, t.mustConfirm) }) {
		return t.patience
	}
	return 0
}

// waitFor returns the WAIT that follows calls: it asks how many replicas know of what this connection has
// written. It returns nil if none need to.
//
// An answer that comes later than the client listens is lost. To Redis zero is forever.
func (t *transport) waitFor(ctx context.Context, calls []*call, listens time.Duration) *redis.Cmd {
	limit := t.mustWait(calls)
	if limit == 0 {
		return nil
	}
	if listens > 0 {
		limit = min(limit, listens/2)
	}
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	return redis.NewCmd(ctx, "wait", t.majority(), max(limit.Milliseconds(), 1))
}

// confirmed returns nil if a WAIT counted enough replicas, or if none need to.
func (t *transport) confirmed(wait *redis.Cmd) error {
	switch {
	case t.replicas == 0:
		return nil
	case wait == nil:
		return errors.New("the replicas were not asked whether they know of it")
	}
	by, err := wait.Int()
	switch {
	case err != nil:
		return fmt.Errorf("the replicas could not be asked whether they know of it: %w", err)
	case by < t.majority():
		return fmt.Errorf("%d of %d replicas confirmed it in time, and %d must: "+
			"check that they run and follow their master", by, t.replicas, t.majority())
	}
	return nil
}
