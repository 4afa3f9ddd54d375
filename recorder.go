package fencelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

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
	if strings.HasPrefix(e.Key, revokePrefix) { // no program can ask for it
		return
	}
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
	waitFor(running, limit)
	r.stop()
}
