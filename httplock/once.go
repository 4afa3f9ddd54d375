package httplock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock"
)

// done is the answer of once for a slot that is done.
type done struct {
	Done   bool      `json:"done"`
	Key    string    `json:"key"`
	Slot   string    `json:"slot"` // the last one that is done: this one, or a later one
	DoneAt time.Time `json:"done_at"`
	DoneBy string    `json:"done_by"`
}

func (s *Server) once(c *call) (any, error) {
	q := struct {
		acquireRequest
		Slot string `json:"slot"`
	}{}
	if err := c.read(&q); err != nil {
		return nil, err
	}
	slot, err := readSlot(q.Slot, c.start)
	if err != nil {
		return nil, err
	}
	w, err := c.want(&q.acquireRequest)
	if err != nil {
		return nil, err
	}
	w.slot = &slot
	// Most requests of a fleet's timers come when the slot is done.
	if d, err := s.findDone(c.Context(), w); d != nil || err != nil {
		return d, err
	}
	return s.serveWant(c, w, actOnce, s.takeSlot)
}

// takeSlot takes the lock, and looks under it whether the slot is done.
func (s *Server) takeSlot(ctx context.Context, c *call, w *want) (any, error) {
	if !s.locks.Detaches() {
		return s.takeKept(ctx, c, w)
	}
	l, err := w.lock(ctx, s.locks, fencelock.ClaimID(w.id), w.waiting())
	if errors.Is(err, fencelock.ErrLost) { // an earlier request may have found the slot done
		if d, lookErr := s.findDone(context.WithoutCancel(ctx), w); d != nil && lookErr == nil {
			return d, nil
		}
	}
	if err != nil {
		return nil, err
	}
	d, err := s.findDone(context.WithoutCancel(ctx), w)
	if err != nil {
		return nil, err // the lease ends by itself
	}
	if d != nil {
		_ = l.Release(ctx) // the slot is done in any case
		return d, nil
	}
	return s.handOver(ctx, c, w, l)
}

// findDone looks whether the slot of w is done. It returns a nil interface if not.
func (s *Server) findDone(ctx context.Context, w *want) (any, error) {
	l, err := s.locks.Line(ctx, w.Key)
	if err != nil {
		return nil, err
	}
	if l.Done == nil || l.Done.Slot.Before(*w.slot) {
		return nil, nil
	}
	return done{true, w.Key, slotText(l.Done.Slot), l.Done.Done.UTC(), l.Done.Owner}, nil
}

// doneSlot is the answer for a slot that Once has found done.
func (s *Server) doneSlot(ctx context.Context, w *want) (any, error) {
	d, err := s.findDone(context.WithoutCancel(ctx), w)
	if d == nil && err == nil {
		return nil, comeAgain(1)
	}
	return d, err
}
