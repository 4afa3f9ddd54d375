package quorumlock

import (
	"context"
	"math/bits"
	"time"
)

// Calls of members that begin at about the same time share a context: one for each of
// them, with its timer, would cost as much as all else that a quorum adds.
type patient struct {
	ctx   context.Context
	end   context.CancelFunc // never called: it ends by itself, and not before its calls
	until time.Time          // no call begins with it later
}

// A call has half a second, or two, four or eight times that, or five seconds: the next
// that is as long as it asks for. So a Backend has few contexts, whatever leases it is
// asked for.
const (
	shortestCall = 500 * time.Millisecond
	longestCall  = 5 * time.Second
	patiences    = 5
)

// call returns the context of one call of a member, which has d for it, at most longestCall,
// or somewhat longer. It is not its caller's: a call that was sent is waited for, by
// somebody, so that it is known what became of it.
func (b *Backend) call(d time.Duration) context.Context {
	n := bits.Len64(uint64((max(d, shortestCall) - 1) / shortestCall))
	last := &b.patients[min(n, patiences-1)]
	now := time.Now()
	if p := last.Load(); p != nil && now.Before(p.until) {
		return p.ctx
	}
	d = min(shortestCall<<n, longestCall)
	ctx, end := context.WithTimeout(b.ctx, d+d/8)
	last.Store(&patient{ctx, end, now.Add(d / 8)})
	return ctx
}

// patience bounds one call of a member. A node that needs longer is of no use to
// whoever waits for a majority.
func patience(ttl time.Duration) time.Duration { return min(max(ttl, shortestCall), longestCall) }
