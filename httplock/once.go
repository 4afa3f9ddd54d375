package httplock

import (
	"context"
	"errors"
	"strings"
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

// slotPrefix begins the note of a claim of once in the store. The slot follows, and then the note
// of the client. A request that is repeated after its slot has ended is for the same claim, at
// whichever Server it arrives: the claim keeps the slot of the first request.
const slotPrefix = "slot="

// joinSlot returns what the store keeps as the note of a claim for slot.
func joinSlot(slot time.Time, note string) string {
	stored := slotPrefix + slotText(slot)
	if note != "" {
		stored += " " + note
	}
	return stored
}

// splitSlot takes apart what the store keeps as a note. The slot is nil if the claim is not one of once.
func splitSlot(stored string) (slot *time.Time, note string) {
	rest, ok := strings.CutPrefix(stored, slotPrefix)
	if !ok {
		return nil, stored
	}
	text, note, _ := strings.Cut(rest, " ")
	t, err := readSlot(text, time.Time{})
	if err != nil {
		return nil, stored
	}
	return &t, note
}

// keepSlot gives w the slot of its claim, if the claim is in line.
func (w *want) keepSlot(l *fencelock.Line) {
	if c := find(l, w.id); c != nil {
		if slot, _ := splitSlot(c.Note); slot != nil {
			w.slot = slot
		}
	}
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

// findDone looks whether the slot of w is done, which is that of its claim if there is one. It
// returns a nil interface if not.
func (s *Server) findDone(ctx context.Context, w *want) (any, error) {
	l, err := s.locks.Line(ctx, w.Key)
	if err != nil {
		return nil, err
	}
	w.keepSlot(&l)
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
