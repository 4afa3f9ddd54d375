package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// UnconfirmedError says that a command was applied by the master and that too few
// replicas are known to have it.
type UnconfirmedError struct{ err error }

func (e *UnconfirmedError) Error() string { return e.err.Error() }
func (e *UnconfirmedError) Unwrap() error { return e.err }

// IsUnconfirmed reports whether err is an UnconfirmedError.
func IsUnconfirmed(err error) bool {
	var u *UnconfirmedError
	return errors.As(err, &u)
}

// replicas says how many replicas a master has, and how long they may take to confirm.
type replicas struct {
	count    int // 0: none has to confirm
	patience time.Duration
}

// majority is how many replicas have to confirm.
func (r replicas) majority() int { return r.count/2 + 1 }

// mustConfirm reports whether replicas have to confirm a command.
func (t *Transport) mustConfirm(c *Command) bool { return t.replicas.count > 0 && c.Durable }

// WaitsForReplicas reports whether replicas have to confirm Durable commands.
func (t *Transport) WaitsForReplicas() bool { return t.replicas.count > 0 }

// wait returns the command that asks a node how many of its replicas know of what this
// connection has written.
func (r replicas) wait(ctx context.Context, node *redis.Client) *redis.Cmd {
	return redis.NewCmd(ctx, "wait", r.majority(), r.limit(ctx, node).Milliseconds())
}

// limit is how long a WAIT may last: an answer that comes later than the client listens
// is lost. To Redis zero is for ever.
func (r replicas) limit(ctx context.Context, node *redis.Client) time.Duration {
	d := r.patience
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end)/2)
	}
	if listens := node.Options().ReadTimeout; listens > 0 {
		d = min(d, listens/2)
	}
	return max(d, time.Millisecond)
}

// confirmed returns nil if a WAIT counted enough replicas.
func (r replicas) confirmed(wait *redis.Cmd) error {
	if wait == nil {
		return &UnconfirmedError{errors.New("the replicas were not asked whether they know of it")}
	}
	by, err := wait.Int()
	switch {
	case err != nil:
		return &UnconfirmedError{fmt.Errorf("the replicas could not be asked whether they know of it: %w", err)}
	case by < r.majority():
		return &UnconfirmedError{fmt.Errorf("%d of %d replicas confirmed it in time, and %d must: "+
			"check that they run and follow their master", by, r.count, r.majority())}
	}
	return nil
}
