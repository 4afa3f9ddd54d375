package httplock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/httplock/internal/lines"
	"github.com/fencelock/fencelock/internal/note"
)

// granted is the answer of acquire and once.
type granted struct {
	Key       string      `json:"key"`
	Handle    string      `json:"handle"`
	Token     fence.Token `json:"token"`
	Kind      string      `json:"kind"`
	Permits   int64       `json:"permits,omitempty"`
	Size      int64       `json:"size,omitempty"`
	Slot      string      `json:"slot,omitempty"` // of once
	TTLMS     int64       `json:"ttl_ms"`
	LeftMS    int64       `json:"left_ms"`
	WaitedMS  int64       `json:"waited_ms"`
	RequestID string      `json:"request_id"`
}

func (s *Server) acquire(c *call) (any, error) {
	q := struct {
		acquireRequest
		Kind    string `json:"kind"`
		Permits *int64 `json:"permits"`
		Size    *int64 `json:"size"`
	}{}
	if err := c.read(&q); err != nil {
		return nil, err
	}
	w, err := c.want(&q.acquireRequest)
	if err != nil {
		return nil, err
	}
	if err := w.setKind(q.Kind, q.Permits, q.Size); err != nil {
		return nil, err
	}
	if err := s.asked.settle(w); err != nil {
		return nil, err
	}
	if w.named && w.kept {
		l, err := s.locks.Line(c.Context(), w.Key)
		if err == nil {
			err = s.checkReuse(w, l.Claims)
		}
		if err != nil {
			return nil, err
		}
	}
	return s.serveWant(c, w, actAcquire, s.take)
}

func (w *want) setKind(kind string, permits, size *int64) error {
	switch kind {
	case "", "exclusive", "shared":
		if permits != nil || size != nil {
			return invalid("Only kind permits has permits and a size.")
		}
		if kind == "shared" {
			w.kind = "shared"
		}
		return nil
	case "permits":
		if size == nil {
			return invalid("A semaphore has a size; send one.")
		}
		w.kind, w.size, w.permits = "permits", *size, 1
		if permits != nil {
			w.permits = *permits
		}
		return nil
	}
	return invalid("There is no kind %q; want exclusive, shared or permits.", kind)
}

// errStay ends the waiting of a claim that keeps its place.
var errStay = errors.New("the claim keeps its place")

// serveWant has take bring w to a grant, and answers for it. take gets a context that ends
// with the connection, with the draining of the Server, and when the same request arrives
// again.
func (s *Server) serveWant(
	c *call, w *want, what string, take func(ctx context.Context, c *call, w *want) (any, error),
) (any, error) {
	if h, err := s.kept.again(w); h != nil || err != nil {
		return c.grantedAgain(w, h, err)
	}
	if err := s.held.room(c, w); err != nil {
		return nil, err
	}
	turn, err := s.waits.begin(c, w)
	if err != nil {
		return nil, err
	}
	defer s.waits.end(turn)
	// The call before this one may have been granted as it was told to end.
	if h, err := s.kept.again(w); h != nil || err != nil {
		return c.grantedAgain(w, h, err)
	}
	if w.Stay {
		timer := time.AfterFunc(w.wait, func() { turn.cancel(errStay) })
		defer timer.Stop()
	}
	answer, err := take(turn.ctx, c, w)
	if err != nil {
		err = s.refusal(turn.ctx, c, w, err)
	}
	if c.Context().Err() != nil && !w.named {
		s.abandon(c, w, answer)
		answer, err = nil, errGone
	}
	switch g, ok := answer.(*granted); {
	case ok && err == nil:
		s.noteGrant(w, g)
		c.audit(what, w.Key, g.Token, nil, "request_id", w.RequestID, "waited_ms", g.WaitedMS)
	case errors.Is(err, errGone):
		c.audit(actGone, w.Key, 0, nil, "request_id", w.RequestID)
	case err != nil:
		c.audit(what, w.Key, 0, err, "request_id", w.RequestID)
	}
	return answer, err
}

// abandon ends the claim of w, or its grant, when its client has gone. Nobody else knows its
// request_id, so no other Server has returned the grant. A client that has drawn the request_id
// itself may have: its claim stays until its lease ends, for the request that is repeated.
func (s *Server) abandon(c *call, w *want, answer any) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), leaveTimeout)
	defer cancel()
	if g, ok := answer.(*granted); ok {
		s.held.remove(c.who.name, g.Handle)
	}
	_ = s.endClaim(ctx, w) // or its lease ends it
	s.watch.Poke(w.Key)
}

// waiting is how long a call for w waits in line.
func (w *want) waiting() fencelock.Option {
	if w.Stay {
		return nil // its context ends instead
	}
	return fencelock.Wait(w.wait)
}

// detaches reports whether the store can pass a lease to another process.
func (s *Server) detaches() bool { return s.locks.Detached("") != nil }

// take takes an exclusive lock, a share or permits.
func (s *Server) take(ctx context.Context, c *call, w *want) (any, error) {
	if !s.detaches() {
		return s.takeKept(ctx, c, w)
	}
	l, err := w.lock(ctx, s.locks, fencelock.ClaimID(w.claimID()), w.waiting())
	if err != nil {
		return nil, err
	}
	return s.handOver(ctx, c, w, l)
}

// handOver passes the lease to the client. If it fails, the lease ends by itself, with nothing
// sent: the client may have asked another Server meanwhile.
func (s *Server) handOver(ctx context.Context, c *call, w *want, l *fencelock.Lease) (any, error) {
	deadline := l.Deadline() // Detach makes it later
	h, err := s.locks.Detach(context.WithoutCancel(ctx), l)
	if err != nil {
		return nil, err
	}
	s.held.add(c.who.name, string(h), deadline)
	return c.granted(w, &holding{handle: string(h), lease: l}, deadline), nil
}

// grantedAgain is the answer to a request that is repeated, if h is the lease that it was granted.
func (c *call) grantedAgain(w *want, h *holding, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	w.slot = h.want.slot
	return c.granted(w, h, h.lease.Deadline()), nil
}

// granted is the answer for a lease that lasts until deadline.
func (c *call) granted(w *want, h *holding, deadline time.Time) *granted {
	g := &granted{
		Key: w.Key, Handle: h.handle, Token: h.lease.Token(), Kind: w.kind, Permits: w.permits, Size: w.size,
		TTLMS: h.lease.TTL().Milliseconds(), RequestID: w.RequestID,
		WaitedMS: time.Since(c.start).Milliseconds(), LeftMS: max(time.Until(deadline), 0).Milliseconds(),
	}
	if w.slot != nil {
		g.Slot = note.Slot(*w.slot)
	}
	return g
}

// refusal is err, why w was not granted, as the client gets it.
func (s *Server) refusal(ctx context.Context, c *call, w *want, err error) error {
	cause := context.Cause(ctx)
	var revoked *problem
	switch {
	case errors.As(cause, &revoked):
		return revoked.about(w)
	case errors.Is(cause, errStay) && errors.Is(err, cause):
		return s.comeAgain(c, w)
	case c.Context().Err() != nil && errors.Is(err, context.Canceled):
		return errGone // the claim keeps its place for as long as its lease lasts: the client may come again
	case errors.Is(err, fencelock.ErrNotAcquired):
		return s.notAcquired(c, w, err)
	}
	p := problemOf(err)
	switch p.slug {
	case slugReused:
		s.asked.forget(w)
	case slugLost:
		p.detail = "This request was not granted, and its claim has ended: a copy of it has left the line or was " +
			"released, or its request_id is spent. Draw a new request_id."
	}
	return p.about(w)
}

// comeAgain is the answer to a w that keeps its place.
func (s *Server) comeAgain(c *call, w *want) error {
	p := comeAgain(0)
	if s.draining.Err() != nil {
		p.retry = 1
	} else if l, err := s.locks.Line(c.Context(), w.Key); err == nil {
		if err := s.checkReuse(w, l.Claims); err != nil {
			return err
		}
	}
	return p.about(w)
}

// about says which request a problem is about.
func (p *problem) about(w *want) *problem {
	p.key = w.Key
	if p.more == nil {
		p.more = map[string]any{}
	}
	p.more["request_id"] = w.RequestID
	if w.slot != nil {
		p.more["slot"] = note.Slot(*w.slot)
	}
	return p
}

// notAcquired says who holds the lock.
func (s *Server) notAcquired(c *call, w *want, err error) error {
	p := &problem{slug: slugNotAcquired, detail: "The lock is held; try again with a new request_id.", retry: 1}
	var holder *fencelock.HeldError
	holders := []standing{}
	ahead := 1
	if errors.As(err, &holder) {
		p.retry, ahead = retryAfter(holder.Left), max(holder.Ahead, 1)
	}
	if l, err := s.locks.Line(c.Context(), w.Key); err == nil {
		if err := s.checkReuse(w, l.Claims); err != nil {
			return err
		}
		granted, _ := lines.Split(&l)
		for _, h := range granted {
			holders = append(holders, standingOf(&h))
		}
	}
	if len(holders) == 0 && holder != nil && holder.Token > 0 {
		h := standing{
			Token: holder.Token, Owner: holder.Owner, Kind: w.kind,
			Since: holder.Since.UTC(), LeftMS: max(holder.Left, 0).Milliseconds(),
		}
		h.setNote(holder.Note)
		holders = append(holders, h)
	}
	p.about(w).more["holders"] = holders
	p.more["ahead"] = ahead
	return p
}
