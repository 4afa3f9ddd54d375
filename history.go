package fencelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// History says how much the store remembers of who held each key. The zero value keeps no
// history, and costs nothing.
//
// A Client with a History writes down each of its grants and how each ended, and each claim
// that it breaks. It writes in the background, a quarter of a second after the first news: no
// call waits for it, and grants that began and ended meanwhile are one entry each. Up to 200
// entries are one request on SQL databases, and one request for each of their keys, sent
// together, on Redis. While the store gives no answer, the last 4096 entries are kept and
// Hooks.Warn says so; HistoryEntry.Missing counts the rest. Close writes what is left.
type History struct {
	Keep int           // grants of each key, the last ones; default 1000. Redis keeps up to twice as many.
	For  time.Duration // after a grant has ended; default 30 days
}

// HistoryEntry is what the store remembers of one grant. What was not written is zero. The
// times are those of the processes that wrote them.
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

// recorder writes the history of a Client. Its goroutine ends when there is nothing to write.
type recorder struct {
	store driver.Historian
	keep  driver.HistoryBounds
	warn  func(Event, error)
	owner string          // of the Client
	ctx   context.Context // ends when Close waits no longer
	stop  context.CancelFunc

	mu      sync.Mutex
	pending []*driver.HistoryEntry // oldest first
	byGrant map[recordedGrant]*driver.HistoryEntry
	lost    uint64        // entries that were dropped
	running chan struct{} // closed when the goroutine ends; nil while none runs
	closing chan struct{} // closed by Close
	closed  bool
}

type recordedGrant struct {
	key   string
	token int64
}

const (
	recordDelay    = 250 * time.Millisecond // news are written together
	recordPause    = 30 * time.Second       // the longest, while the store gives no answer
	recordTimeout  = 5 * time.Second
	maxRecordBatch = 200
	maxPending     = 4096
)

// newRecorder returns the recorder of h; nil if there is no history.
func newRecorder(b driver.Backend, h History) (*recorder, error) {
	if h == (History{}) {
		return nil, nil
	}
	store, err := historian(b)
	if err != nil {
		return nil, err
	}
	r := &recorder{
		store: store, keep: driver.HistoryBounds(h), closing: make(chan struct{}),
		byGrant: map[recordedGrant]*driver.HistoryEntry{},
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r, nil
}

// historian is b, if it keeps a history.
func historian(b driver.Backend) (driver.Historian, error) {
	if h, ok := b.(driver.Historian); ok {
		return h, nil
	}
	return nil, invalid("the %s backend keeps no history: it has neither tables nor streams for it; "+
		"leave Options.History out, or use Hooks", b.Info().Name)
}

// A nil recorder notes nothing.

// begun notes a grant. It may be called under any lock of the core.
func (r *recorder) begun(e *Event) {
	if r == nil {
		return
	}
	now := time.Now().UTC()
	entry := r.entryOf(e)
	entry.Asked, entry.Granted = now.Add(-e.Waited), now
	r.add(entry)
}

// ended notes the end of a grant. It may be called under any lock of the core.
func (r *recorder) ended(e *Event) {
	if r == nil || errors.Is(e.Err, ErrDetached) { // a detached lease goes on under its handle
		return
	}
	entry := r.entryOf(e)
	entry.Granted, entry.Ended, entry.End = e.Time.Add(-e.Held).UTC(), e.Time.UTC(), "released"
	var loss *lossError
	if errors.As(e.Err, &loss) {
		entry.End, entry.Reason = lossWords[loss.kind], loss.detail
	}
	r.add(entry)
}

// entryOf is what e says of its grant, whether it begins or ends.
func (r *recorder) entryOf(e *Event) driver.HistoryEntry {
	return driver.HistoryEntry{
		Key: e.Key, Token: int64(e.Token), Owner: cmp.Or(e.Owner, r.owner), Note: e.Note, Kind: e.Kind.String(),
		Permits: e.Permits,
	}
}

// broken notes that this Client broke a claim.
func (r *recorder) broken(key string, token fence.Token, reason string) {
	if r != nil {
		r.add(driver.HistoryEntry{
			Key: key, Token: int64(token), Broken: time.Now().UTC(), BrokenBy: r.owner, BrokenFor: reason,
		})
	}
}

// left notes that the lease of a handle was released.
func (r *recorder) left(p *handle) {
	if r != nil {
		r.add(driver.HistoryEntry{
			Key: p.ticket.Key, Token: int64(p.token), Owner: p.ticket.Owner, Ended: time.Now().UTC(), End: "released",
		})
	}
}

// add has e written soon.
func (r *recorder) add(e driver.HistoryEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.byGrant[recordedGrant{e.Key, e.Token}]; known != nil {
		known.Merge(e)
		return
	}
	r.pending = append(r.pending, &e)
	r.byGrant[recordedGrant{e.Key, e.Token}] = &e
	r.dropLocked()
	if r.running == nil && !r.closed {
		r.running = make(chan struct{})
		go r.run(r.running)
	}
}

// dropLocked drops the oldest entries of too many.
func (r *recorder) dropLocked() {
	for len(r.pending) > maxPending {
		r.shiftLocked()
		r.lost++
	}
}

// shiftLocked takes the oldest entry out.
func (r *recorder) shiftLocked() *driver.HistoryEntry {
	e := r.pending[0]
	r.pending[0], r.pending = nil, r.pending[1:]
	delete(r.byGrant, recordedGrant{e.Key, e.Token})
	return e
}

// run writes until nothing is left.
func (r *recorder) run(running chan struct{}) {
	defer close(running)
	for pause := recordDelay; ; {
		closing := r.sleep(pause)
		batch := r.take()
		if batch == nil {
			return
		}
		ctx, cancel := context.WithTimeout(r.ctx, recordTimeout)
		err := r.store.Record(ctx, batch, r.keep)
		cancel()
		switch {
		case err == nil && len(batch) == maxRecordBatch:
			pause = 0
			continue
		case err == nil:
			pause = recordDelay
			continue
		}
		r.putBack(batch)
		r.warn(Event{}, fmt.Errorf("the history cannot be written: %w", err))
		if closing {
			return
		}
		pause = min(2*max(pause, recordDelay), recordPause)
	}
}

// sleep reports whether Close has ended it.
func (r *recorder) sleep(d time.Duration) (closing bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-r.closing:
		return true
	}
}

// take takes the oldest entries out, to write them. Without any, it lets the goroutine end.
func (r *recorder) take() []driver.HistoryEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		r.running = nil
		return nil
	}
	var batch []driver.HistoryEntry
	for len(r.pending) > 0 && len(batch) < maxRecordBatch {
		batch = append(batch, *r.shiftLocked())
	}
	batch[0].Lost, r.lost = r.lost, 0
	return batch
}

// putBack undoes take.
func (r *recorder) putBack(batch []driver.HistoryEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost += batch[0].Lost
	batch[0].Lost = 0
	var before []*driver.HistoryEntry
	for _, e := range batch {
		grant := recordedGrant{e.Key, e.Token}
		if later := r.byGrant[grant]; later != nil {
			e.Merge(*later)
			*later = e
			continue
		}
		r.byGrant[grant] = &e
		before = append(before, &e)
	}
	r.pending = append(before, r.pending...)
	r.dropLocked()
}

// close writes what is left, for at most limit.
func (r *recorder) close(limit time.Duration) {
	if r == nil {
		return
	}
	r.mu.Lock()
	running := r.running
	r.closed = true
	close(r.closing)
	r.mu.Unlock()
	defer r.stop()
	if running == nil {
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-running:
	case <-t.C:
	}
}

// History returns what the store remembers of the last n grants of key, the newest first,
// whoever wrote it: this Client needs no Options.History. Processes write a moment after the
// event. A process that was killed has written no end. It costs one round trip, and a second
// one if a grant has no end.
//
// Errors: ErrInvalid if the backend keeps no history, or n is not 1 to 100000; ErrUnavailable
// if the store gives no answer, or lacks the table: run what fencelock schema prints.
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
