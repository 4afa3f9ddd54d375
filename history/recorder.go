package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
)

// Options bound a history. Nil and the zero value are ready to use.
type Options struct {
	Keep int           // grants of each key, the last ones; default 1000. Redis keeps up to twice as many.
	For  time.Duration // after a grant has ended; default 30 days

	// OnError is called once for each outage in which the history cannot be written.
	OnError func(error)
}

// Recorder writes what a Client does to the history of its store.
//
// It writes in the background, a quarter of a second after the first news: no call waits for it,
// and grants that began and ended meanwhile are one entry each. Up to 200 entries are one
// request on SQL databases, and one request for each of their keys, sent together, on Redis.
// While the store does not respond, the last 4096 entries are kept; Entry.Missing counts the rest.
// The last event of a Client, EventClosed, has it write what is left.
type Recorder struct {
	store   record.Store
	keep    record.Bounds
	onError func(error)
	ctx     context.Context // ends when the Client is closed
	stop    context.CancelFunc

	mu      sync.Mutex
	pending []*record.Entry // oldest first
	byGrant map[recordedGrant]*record.Entry
	lost    uint64        // entries that were dropped
	running chan struct{} // closed when the goroutine ends; nil while none runs
	closing chan struct{} // closed by EventClosed
	closed  bool
}

type recordedGrant struct {
	key   string
	token int64
}

const (
	recordDelay    = 250 * time.Millisecond // news are written together
	recordPause    = 30 * time.Second       // the longest, while the store does not respond
	recordTimeout  = 5 * time.Second
	maxRecordBatch = 200
	maxPending     = 4096
	closeBudget    = 2 * time.Second
)

// maxKeep is how many grants of a key may be kept, or read at once.
const maxKeep = 100_000

// New returns a Recorder for one Client on b: give its OnEvent to fencelock.Options.OnEvent. The
// error is ErrInvalid for a bad value in o, and where the backend keeps no history (etcd,
// ZooKeeper, a quorum). It does no I/O.
func New(b driver.Backend, o *Options) (*Recorder, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.Keep, opts.For = cmp.Or(opts.Keep, 1000), cmp.Or(opts.For, 30*24*time.Hour)
	store, err := storeOf(b)
	switch {
	case err != nil:
		return nil, err
	case opts.Keep < 1 || opts.Keep > maxKeep:
		return nil, invalid("Keep is %d; want 1 to %d, or 0 for the default", opts.Keep, maxKeep)
	case opts.For < time.Second || opts.For > 10*366*24*time.Hour:
		return nil, invalid("For is %v; want 1s to ten years, or 0 for the default", opts.For)
	}
	r := &Recorder{
		store: store, keep: record.Bounds{Keep: opts.Keep, For: opts.For}, onError: opts.OnError,
		closing: make(chan struct{}), byGrant: map[recordedGrant]*record.Entry{},
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r, nil
}

// storeOf is b, if it keeps a history.
func storeOf(b driver.Backend) (record.Store, error) {
	if b == nil {
		return nil, invalid("there is no backend")
	}
	if s, ok := b.(record.Store); ok {
		return s, nil
	}
	return nil, invalid("the %s backend keeps no history: it has neither tables nor streams for it", b.Info().Name)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("history: %w: %s", fencelock.ErrInvalid, fmt.Sprintf(format, args...))
}

// OnEvent notes e. It only waits, at most two seconds, for the last event of a Client.
func (r *Recorder) OnEvent(e fencelock.Event) {
	if e.Dropped > 0 {
		r.mu.Lock()
		r.lost += e.Dropped
		r.mu.Unlock()
	}
	switch e.Type {
	case fencelock.EventAcquired:
		r.begun(&e)
	case fencelock.EventLost, fencelock.EventReleased, fencelock.EventHandleReleased:
		r.ended(&e)
	case fencelock.EventBroke:
		r.add(record.Entry{
			Key: e.Key, Token: int64(e.Token), Broken: e.Time.UTC(), BrokenBy: e.Owner, BrokenFor: e.Reason,
		})
	case fencelock.EventClosed:
		r.close()
	}
}

func (r *Recorder) begun(e *fencelock.Event) {
	entry := entryOf(e)
	entry.Asked, entry.Granted = e.Time.Add(-e.Took).UTC(), e.Time.UTC()
	r.add(entry)
}

func (r *Recorder) ended(e *fencelock.Event) {
	if errors.Is(e.Err, fencelock.ErrDetached) { // a detached lease goes on under its handle
		return
	}
	entry := entryOf(e)
	entry.Ended, entry.End = e.Time.UTC(), "released"
	if e.Type != fencelock.EventHandleReleased {
		entry.Granted = e.Time.Add(-e.Took).UTC()
	}
	if e.Type == fencelock.EventLost {
		entry.End, entry.Reason = lossWord(e.Err), e.Reason
	}
	r.add(entry)
}

// lossWord returns the word for a loss in Entry.End.
func lossWord(err error) string {
	for _, loss := range []struct {
		err  error
		word string
	}{
		{fencelock.ErrExpired, "expired"},
		{fencelock.ErrStalled, "stalled"},
		{fencelock.ErrMaxHold, "max_hold"},
		{fencelock.ErrClosed, "closed"},
	} {
		if errors.Is(err, loss.err) {
			return loss.word
		}
	}
	return "broken"
}

// entryOf returns the fields that e has of its grant, whether it begins or ends.
func entryOf(e *fencelock.Event) record.Entry {
	entry := record.Entry{Key: e.Key, Token: int64(e.Token)}
	if e.Type != fencelock.EventHandleReleased { // the releasing Client knows the handle only
		entry.Owner, entry.Note, entry.Kind, entry.Permits = e.Owner, e.Note, e.Kind, e.Permits
	}
	return entry
}

// add has e written soon.
func (r *Recorder) add(e record.Entry) {
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
func (r *Recorder) dropLocked() {
	for len(r.pending) > maxPending {
		r.shiftLocked()
		r.lost++
	}
}

// shiftLocked takes the oldest entry out.
func (r *Recorder) shiftLocked() *record.Entry {
	e := r.pending[0]
	r.pending[0], r.pending = nil, r.pending[1:]
	delete(r.byGrant, recordedGrant{e.Key, e.Token})
	return e
}

// run writes until nothing is left.
func (r *Recorder) run(running chan struct{}) {
	defer close(running)
	failing := false
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
			pause, failing = 0, false
			continue
		case err == nil:
			pause, failing = recordDelay, false
			continue
		}
		r.putBack(batch)
		if !failing && r.onError != nil {
			r.onError(fmt.Errorf("the history cannot be written: %w", err))
		}
		failing = true
		if closing {
			return
		}
		pause = min(2*max(pause, recordDelay), recordPause)
	}
}

// sleep reports whether Close has ended it.
func (r *Recorder) sleep(d time.Duration) (closing bool) {
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
func (r *Recorder) take() []record.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		r.running = nil
		return nil
	}
	var batch []record.Entry
	for len(r.pending) > 0 && len(batch) < maxRecordBatch {
		batch = append(batch, *r.shiftLocked())
	}
	batch[0].Lost, r.lost = r.lost, 0
	return batch
}

// putBack undoes take.
func (r *Recorder) putBack(batch []record.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost += batch[0].Lost
	batch[0].Lost = 0
	var before []*record.Entry
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

// close writes what is left, for at most closeBudget.
func (r *Recorder) close() {
	r.mu.Lock()
	running, closed := r.running, r.closed
	r.closed = true
	r.mu.Unlock()
	if closed {
		return
	}
	close(r.closing)
	if running != nil {
		limit := time.NewTimer(closeBudget)
		defer limit.Stop()
		select {
		case <-running:
		case <-limit.C:
		}
	}
	r.stop()
}
