package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/limit"
)

// Entry is the store's record of one grant. A field that was not written is zero. Times are
// those of the processes that wrote them.
type Entry struct {
	Key         string
	Token       fence.Token
	Owner, Note string
	Kind        string
	Permits     int64 // of a semaphore
	Asked       time.Time
	Granted     time.Time // zero if the claim was broken while it waited
	Ended       time.Time // zero if the grant goes on (see Held), or if its process wrote no end
	Held        bool      // no end was written, and the claim is in the line
	// End is how the grant ended: released, expired, stalled, broken, max_hold or closed.
	End      string
	Reason   string // why it ended so
	BrokenBy string // the owner that broke it
	Missing  uint64 // entries that the process could not write before this one
}

// Read returns the records of the last n grants of key in the store of b, the newest first, by
// all processes. Processes write a moment after the event. A process that was killed has
// written no end. It costs one round trip, and a second one if a grant has no end. b may be the
// backend of a Client. Read is safe for concurrent use.
//
// Errors: ErrInvalid if the backend keeps no history, if key is not the name of a lock, or if n
// is not 1 to 100000; ErrUnavailable if the store does not respond within ten seconds, or lacks
// the table: run what fencelock schema prints.
func Read(ctx context.Context, b driver.Backend, key string, n int) ([]Entry, error) {
	store, err := storeOf(b)
	switch {
	case err != nil:
		return nil, err
	case key == "" || len(key) > limit.Key:
		return nil, invalid("the key has %d bytes; want 1 to %d", len(key), limit.Key)
	case n < 1 || n > maxKeep:
		return nil, invalid("%d entries were asked for; want 1 to %d", n, maxKeep)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stored, err := store.History(ctx, key, n)
	if err != nil {
		return nil, unavailable(err)
	}
	stored = joinBreaks(stored)
	var line driver.Line
	if slices.ContainsFunc(stored, func(e record.Entry) bool { return e.Ended.IsZero() && e.BrokenBy == "" }) {
		if line, err = b.Line(ctx, key); err != nil {
			return nil, unavailable(err)
		}
	}
	entries := make([]Entry, len(stored))
	for i, e := range stored {
		e.Key = key
		entries[i] = resultOf(&e)
		entries[i].Held = entries[i].Ended.IsZero() && holds(&line, e.Token)
	}
	return entries, nil
}

// readTimeout bounds the requests of one Read together.
const readTimeout = 10 * time.Second

func unavailable(err error) error {
	return fmt.Errorf("history: %w: %w", fencelock.ErrUnavailable, err)
}

// joinBreaks gives each break to the grant that it has ended, if the grant is among es.
func joinBreaks(es []record.Entry) []record.Entry {
	for i := len(es) - 1; i >= 0; i-- {
		b := es[i]
		if b.BrokenBy == "" || endedBy(&b, &b) {
			continue
		}
		for j := i - 1; j >= 0 && es[j].Token-b.Token < limit.Span; j-- {
			if g := &es[j]; g.BrokenBy == "" && endedBy(g, &b) {
				g.Broken, g.BrokenBy, g.BrokenFor = b.Broken, b.BrokenBy, b.BrokenFor
				es[i].Broken, es[i].BrokenBy, es[i].BrokenFor = time.Time{}, "", ""
				break
			}
		}
	}
	return slices.DeleteFunc(es, func(e record.Entry) bool {
		return e.Granted.IsZero() && e.BrokenBy == "" && e.End == ""
	})
}

// endedBy reports whether the break of b may have ended g.
func endedBy(g, b *record.Entry) bool {
	return !g.Granted.IsZero() && !g.Granted.After(b.Broken) &&
		(g.Ended.IsZero() || g.End == "broken" || g.Ended.After(b.Broken))
}

// resultOf is e as Read returns it.
func resultOf(e *record.Entry) Entry {
	h := Entry{
		Key: e.Key, Token: fence.Token(e.Token), Owner: e.Owner, Note: e.Note, Kind: cmp.Or(e.Kind, "exclusive"),
		Permits: e.Permits, Asked: e.Asked, Granted: e.Granted, Ended: e.Ended, End: e.End, Reason: e.Reason,
		BrokenBy: e.BrokenBy, Missing: e.Lost,
	}
	if e.BrokenBy != "" {
		h.Ended, h.End, h.Reason = cmp.Or(e.Ended, e.Broken), "broken", cmp.Or(e.BrokenFor, e.Reason)
	}
	return h
}

// holds reports whether the claim with the token holds its key.
func holds(l *driver.Line, token int64) bool {
	return slices.ContainsFunc(l.Claims, func(s driver.Standing) bool {
		return s.Granted && token >= s.Token && token-s.Token < max(s.Span, 1)
	})
}
