package quorumlock

import (
	"context"
	"sync/atomic"
	"time"
)

// patient is a context that calls of members share which begin at about the same time:
// one for each of them, with its timer, would cost as much as all else that a quorum adds.
type patient struct {
	ctx   context.Context
	end   context.CancelFunc // never called: it ends by itself, and not before its calls
	lasts time.Duration      // what its calls have at least
	until time.Time          // no call begins with it later
}

// call returns the context of one call of a member, which has d for it, or an eighth
// more; last is the one before of the same kind. It is not its caller's: a call that was
// sent is waited for, by somebody, so that it is known what became of it.
func (b *Backend) call(last *atomic.Pointer[patient], d time.Duration) context.Context {
	now := time.Now()
	if p := last.Load(); p != nil && p.lasts == d && now.Before(p.until) {
		return p.ctx
	}
	ctx, end := context.WithTimeout(b.ctx, d+d/8)
	last.Store(&patient{ctx, end, d, now.Add(d / 8)})
	return ctx
}

// patience bounds one call of a member. A node that needs longer is of no use to
// whoever waits for a majority.
func patience(ttl time.Duration) time.Duration {
	return min(max(ttl, 500*time.Millisecond), 5*time.Second)
}
