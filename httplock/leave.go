package httplock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
)

// leaveTimeout bounds the end of one request.
const leaveTimeout = 5 * time.Second

// leave ends a request for good: its claim leaves the line, or gives back what it was granted.
// The client must not use the request_id again, and so no other Server can have the claim
// granted meanwhile to somebody who believes in it.
func (s *Server) leave(c *call) (any, error) {
	var q struct {
		Key       string `json:"key"`
		RequestID string `json:"request_id"`
	}
	if err := c.read(&q); err != nil {
		return nil, err
	}
	if err := checkKey(q.Key, MaxKey); err != nil {
		return nil, err
	}
	if !requestID.MatchString(q.RequestID) {
		return nil, invalid("The request_id is missing; want that of the request to end.")
	}
	if err := c.who.may(verbAcquire, q.Key); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), leaveTimeout)
	defer cancel()
	w := &want{acquireRequest: acquireRequest{Key: q.Key}, ttl: fencelock.DefaultTTL}
	w.kind = "exclusive"
	w.id = c.who.claimID(q.Key, q.RequestID)
	err := s.waits.stop(ctx, w.id)
	if err == nil {
		err = s.endClaim(ctx, w)
	}
	c.audit(actLeave, q.Key, 0, err, "request_id", q.RequestID)
	if err != nil {
		return nil, err
	}
	s.watch.Poke(q.Key)
	return map[string]any{"key": q.Key, "request_id": q.RequestID, "left": true}, nil
}

// endClaim takes the claim of w out of its line, if it is there.
func (s *Server) endClaim(ctx context.Context, w *want) error {
	if h := s.kept.of(w.id); h != nil {
		return h.release(ctx, false)
	}
	if !s.detaches() {
		return nil // its claim left when the waiting ended
	}
	l, err := s.locks.Line(ctx, w.Key)
	if err != nil || !w.findIn(&l) {
		return err
	}
	// A call that finds its claim in line has it, or takes it out as its waiting is over.
	lease, err := w.lock(ctx, s.locks, fencelock.ClaimID(w.claimID()), fencelock.Wait(0))
	if err == nil {
		return lease.Release(ctx)
	}
	if l, err = s.locks.Line(ctx, w.Key); err == nil && w.findIn(&l) {
		err = fencelock.ErrUnavailable
	}
	return err
}

// findIn reports whether the request of w has a claim in line, and has w wish for what that is for.
func (w *want) findIn(l *fencelock.Line) bool {
	for _, c := range l.Claims {
		if of, ok := w.wishOf(&c); ok {
			w.wish = of
			return true
		}
	}
	return false
}
