package fencelock

import (
	"context"
	"iter"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// Line is the line of one key, as it was at one moment.
type Line struct {
	Key    string
	Last   fence.Token // the largest token drawn so far; 0 if none is remembered
	Claims []Standing  // the holders, then the waiters in order of arrival

	// The last slot that Once has finished, when it was finished by the clock of that process, and
	// its owner. Done is zero if there is none; Slot is also zero for once forever.
	Slot, Done time.Time
	DoneBy     string
}

// Standing is one claim in a line.
type Standing struct {
	ID          string // the beginning of the claim's ID: enough to tell claims apart
	Owner, Note string
	Trace       string        // of Options.Trace of its process
	Kind        string        // how it shares the key: "exclusive", "shared" or "permits"
	Permits     int64         // that it has or wants of a semaphore
	Size        int64         // of that semaphore
	Token       fence.Token   // the first of its tokens, which it draws as it joins the line; see HasToken
	span        int64         // its tokens: how many holders of one process the claim may serve
	Granted     bool          // it holds the key
	Lingering   bool          // its holder has left or was broken; MinHold or LockDelay keeps the key taken
	Since       time.Time     // granted since, or waiting since, by the store's clock
	Left        time.Duration // of its lease, when it was looked at
}

// HasToken reports whether t is one of the tokens of the claim: one for each holder of its
// process that the claim may serve.
func (s *Standing) HasToken(t fence.Token) bool {
	return t >= s.Token && int64(t-s.Token) < max(s.span, 1)
}

func lineOf(d *driver.Line) Line {
	l := Line{Key: d.Key, Last: fence.Token(d.Last)}
	if r, ok := readMark(d.Mark); ok {
		l.Slot, l.Done, l.DoneBy = r.slot, r.done, r.owner
	}
	var waiters []Standing
	for _, c := range d.Claims {
		s := Standing{
			ID: c.ID, Owner: c.Owner, Note: c.Note, Trace: c.Trace, Token: fence.Token(c.Token), span: c.Span,
			Granted: c.Granted, Lingering: c.Lingering, Since: c.Since, Left: c.Left,
		}
		s.setKind(c.Capacity, c.Weight)
		if c.Granted {
			l.Claims = append(l.Claims, s)
		} else {
			waiters = append(waiters, s)
		}
	}
	l.Claims = append(l.Claims, waiters...)
	return l
}

// Line returns the line of key: its holders and its waiters. The line may have changed when
// Line returns. An unused key has no claims. It costs one round trip.
func (c *Client) Line(ctx context.Context, key string) (Line, error) {
	const op = "line"
	if err := c.ready(key); err != nil {
		return Line{}, wrap(op, key, err)
	}
	call := c.life.acquiring.Call(ctx, c.clock.Now(), c.options.TTL/3)
	defer call.End()
	l, err := c.backend.Line(call, key)
	if err != nil {
		return Line{}, wrap(op, key, c.storeError(ctx, err))
	}
	return lineOf(&l), nil
}

// Lines yields all lines with at least one claim whose keys begin with prefix, in no
// particular order. It stops after the first error.
func (c *Client) Lines(ctx context.Context, prefix string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		if err := c.ready("x"); err != nil {
			yield(Line{}, wrap("lines", prefix, err))
			return
		}
		for l, err := range c.backend.Lines(ctx, prefix) {
			if err != nil {
				yield(Line{}, wrap("lines", prefix, unavailable(ctx, err)))
				return
			}
			if !yield(lineOf(&l), nil) {
				return
			}
		}
	}
}

// setKind sets Kind, and Permits and Size of a semaphore's claim.
func (s *Standing) setKind(capacity, weight int64) {
	switch {
	case capacity != driver.RW:
		s.Kind, s.Permits, s.Size = "permits", weight, capacity
	case weight == driver.RW:
		s.Kind = "exclusive"
	default:
		s.Kind = "shared"
	}
}
