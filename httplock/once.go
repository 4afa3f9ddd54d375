package httplock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/note"
)

// done is the answer of once for a slot that is done.
type done struct {
	Done   bool      `json:"done"`
	Key    string    `json:"key"`
	Slot   string    `json:"slot"` // the last one that is done: this one, or any for "ever"
	DoneAt time.Time `json:"done_at"`
	DoneBy string    `json:"done_by"`

	passed bool // a later slot is done
}

// answer returns d, or the problem that the slot of w was passed.
func (d *done) answer(w *want) (any, error) {
	if !d.passed {
		return d, nil
	}
	p := &problem{slug: slugSlotPassed, detail: "The later slot " + d.Slot + " is done, so this one cannot run any " +
		"more. Whether it was done before is not known."}
	p.about(w).more["done_slot"] = d.Slot
	p.more["done_at"], p.more["done_by"] = d.DoneAt, d.DoneBy
	return nil, p
}

func (s *Server) once(c *call) (any, error) {
	q := struct {
		acquireRequest
		Slot  string   `json:"slot"`
		Since duration `json:"since"`
	}{}
	if err := c.read(&q); err != nil {
		return nil, err
	}
	since := time.Duration(q.Since)
	if since < 0 || since > maxTTL {
		return nil, invalid("It is %v since the request was sent first; want 0s to %v.", since, maxTTL)
	}
	slot, err := readSlot(q.Slot, c.start.Add(-since))
	if err != nil {
		return nil, err
	}
	w, err := c.want(&q.acquireRequest)
	if err != nil {
		return nil, err
	}
	w.slot = &slot
	if err := s.asked.settle(w); err != nil {
		return nil, err
	}
	// Most requests of a fleet's timers come when the slot is done.
	l, err := s.locks.Line(c.Context(), w.Key)
	if err == nil {
		err = s.checkReuse(w, l.Claims)
	}
	if err != nil {
		return nil, err
	}
	if d := w.doneIn(&l); d != nil {
		return d.answer(w)
	}
	return s.serveWant(c, w, actOnce, s.takeSlot)
}

// keepSlot gives w the slot of its claim, if the claim is in line: a request that is repeated after
// its slot has ended is for the same claim, at whichever Server it arrives.
func (w *want) keepSlot(l *fencelock.Line) {
	for _, c := range l.Claims {
		if of, ok := w.wishOf(&c); ok && of.slot != nil {
			w.slot = of.slot
		}
	}
}

// takeSlot takes the lock, and looks under it whether the slot is done.
func (s *Server) takeSlot(ctx context.Context, c *call, w *want) (any, error) {
	if !s.detaches() {
		return s.takeKept(ctx, c, w)
	}
	l, err := w.lock(ctx, s.locks, fencelock.ClaimID(w.claimID()), w.waiting())
	if errors.Is(err, fencelock.ErrLost) { // an earlier request may have found the slot done
		if d, lookErr := s.findDone(context.WithoutCancel(ctx), w); d != nil && lookErr == nil {
			return d.answer(w)
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
		_ = l.Release(ctx) // nothing runs in any case
		return d.answer(w)
	}
	return s.handOver(ctx, c, w, l)
}

// findDone returns the last slot that is done, if w need not run.
func (s *Server) findDone(ctx context.Context, w *want) (*done, error) {
	l, err := s.locks.Line(ctx, w.Key)
	if err != nil {
		return nil, err
	}
	return w.doneIn(&l), nil
}

// doneIn returns the last slot that is done, unless it is before that of w, which is that of its
// claim if there is one.
func (w *want) doneIn(l *fencelock.Line) *done {
	w.keepSlot(l)
	if l.Done.IsZero() || l.Slot.Before(*w.slot) {
		return nil
	}
	passed := !w.slot.IsZero() && l.Slot.After(*w.slot)
	return &done{true, w.Key, note.Slot(l.Slot), l.Done.UTC(), l.DoneBy, passed}
}

// doneSlot is the answer for a slot that Once has found done, or passed.
func (s *Server) doneSlot(ctx context.Context, w *want) (any, error) {
	d, err := s.findDone(context.WithoutCancel(ctx), w)
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return nil, comeAgain(1)
	}
	return d.answer(w)
}
