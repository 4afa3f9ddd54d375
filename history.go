package fencelock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// History configures how many grants of each key the store records, and for how long. The
// zero value keeps no history and costs nothing.
//
// A Client with a History records each of its grants with its end, and each claim that it
// breaks. It writes in the background, a quarter of a second after the first event. No call
// waits for that, and a grant that began and ended meanwhile is one entry. Up to 200
// entries are one request on SQL databases, and one request for each of their keys, sent
// together, on Redis. While the store does not respond, the Client keeps the last 4096
// entries and sends an EventWarning; HistoryEntry.Missing counts the rest. Close writes
// what is left.
type History struct {
	Keep int           // grants of each key, the last ones; default 1000. Redis keeps up to twice as many.
	For  time.Duration // after a grant has ended; default 30 days
}

// HistoryEntry is the store's record of one grant. A field that was not written is zero.
// Times are those of the processes that wrote them.
type HistoryEntry struct {
	Key         string
	Token       fence.Token
	Owner, Note string
	Kind        Kind
	Permits     int64 // of a semaphore
	Asked       time.Time
	Granted     time.Time // zero if the claim was broken while it waited
	Ended       time.Time // zero if the grant goes on (see Held), or if its process wrote no end
	Held        bool      // no end was written, and the claim is in the line
	// End is how the grant ended: released, expired, stalled, broken, max_hold or closed.
	End      string
	Reason   string // why, beside End
	BrokenBy string // the owner that broke it
	Missing  uint64 // entries that the process could not write before this one
}

// lossWords are what HistoryEntry.End says of losses.
var lossWords = map[error]string{
	ErrExpired: "expired", ErrStalled: "stalled", ErrBroken: "broken", ErrMaxHold: "max_hold", ErrClosed: "closed",
}

// maxHistory is how many grants of a key may be kept, or read at once.
const maxHistory = 100_000

// withDefaults returns a copy with defaults, or says which value is bad.
func (h History) withDefaults() (History, error) {
	if h == (History{}) {
		return h, nil
	}
	h.Keep, h.For = cmp.Or(h.Keep, 1000), cmp.Or(h.For, 30*24*time.Hour)
	switch {
	case h.Keep < 1 || h.Keep > maxHistory:
		return h, invalid("History.Keep is %d; want 1 to %d, or 0 for the default", h.Keep, maxHistory)
	case h.For < time.Second || h.For > 10*366*24*time.Hour:
		return h, invalid("History.For is %v; want 1s to ten years, or 0 for the default", h.For)
	}
	return h, nil
}

// historian is b, if it keeps a history.
func historian(b driver.Backend) (driver.Historian, error) {
	if h, ok := b.(driver.Historian); ok {
		return h, nil
	}
	return nil, invalid("the %s backend keeps no history: it has neither tables nor streams for it; "+
		"leave Options.History out, or use Options.OnEvent", b.Info().Name)
}

// History returns the store's records of the last n grants of key, the newest first. All
// processes with Options.History write them; this Client needs no Options.History to read
// them. Processes write a moment after the event, and a killed process has written no end.
// It costs one round trip, and a second one if a grant has no end.
//
// Errors: ErrInvalid if the backend keeps no history, or n is not 1 to 100000;
// ErrUnavailable if the store does not respond, or lacks the table: run the statements that
// fencelock schema prints.
func (c *Client) History(ctx context.Context, key string, n int) ([]HistoryEntry, error) {
	const op = "history"
	h, err := historian(c.backend)
	if err = cmp.Or(c.ready(key), err); err == nil && (n < 1 || n > maxHistory) {
		err = invalid("%d entries were asked for; want 1 to %d", n, maxHistory)
	}
	if err != nil {
		return nil, wrap(op, key, err)
	}
	call := c.life.acquiring.call(ctx, c.clock.now(), c.options.TTL/3)
	defer call.end()
	stored, err := h.History(call, key, n)
	if err != nil {
		return nil, wrap(op, key, c.storeError(ctx, err))
	}
	stored = joinBreaks(stored)
	var line Line
	if slices.ContainsFunc(stored, func(e driver.HistoryEntry) bool { return e.Ended.IsZero() && e.BrokenBy == "" }) {
		if line, err = c.Line(ctx, key); err != nil {
			return nil, err
		}
	}
	entries := make([]HistoryEntry, len(stored))
	for i, e := range stored {
		e.Key = key
		entries[i] = resultOf(&e)
		entries[i].Held = entries[i].Ended.IsZero() && slices.ContainsFunc(line.Holders, func(s Standing) bool {
			return s.HasToken(fence.Token(e.Token))
		})
	}
	return entries, nil
}

// joinBreaks gives each break to the grant that it has ended, if the grant is among es.
func joinBreaks(es []driver.HistoryEntry) []driver.HistoryEntry {
	for i := len(es) - 1; i >= 0; i-- {
		b := es[i]
		if b.BrokenBy == "" || endedBy(&b, &b) {
			continue
		}
		for j := i - 1; j >= 0 && es[j].Token-b.Token < driver.MaxSpan; j-- {
			if g := &es[j]; g.BrokenBy == "" && endedBy(g, &b) {
				g.Broken, g.BrokenBy, g.BrokenFor = b.Broken, b.BrokenBy, b.BrokenFor
				es[i].Broken, es[i].BrokenBy, es[i].BrokenFor = time.Time{}, "", ""
				break
			}
		}
	}
	return slices.DeleteFunc(es, func(e driver.HistoryEntry) bool {
		return e.Granted.IsZero() && e.BrokenBy == "" && e.End == ""
	})
}

// endedBy reports whether the break of b may have ended g.
func endedBy(g, b *driver.HistoryEntry) bool {
	return !g.Granted.IsZero() && !g.Granted.After(b.Broken) &&
		(g.Ended.IsZero() || g.End == "broken" || g.Ended.After(b.Broken))
}

// resultOf is e as History returns it.
func resultOf(e *driver.HistoryEntry) HistoryEntry {
	h := HistoryEntry{
		Key: e.Key, Token: fence.Token(e.Token), Owner: e.Owner, Note: e.Note, Kind: kindNamed(e.Kind),
		Permits: e.Permits, Asked: e.Asked, Granted: e.Granted, Ended: e.Ended, End: e.End, Reason: e.Reason,
		BrokenBy: e.BrokenBy, Missing: e.Lost,
	}
	if e.BrokenBy != "" {
		h.Ended, h.End, h.Reason = cmp.Or(e.Ended, e.Broken), "broken", cmp.Or(e.BrokenFor, e.Reason)
	}
	return h
}
