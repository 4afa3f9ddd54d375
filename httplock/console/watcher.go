package console

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
)

const (
	lookEvery = time.Second
	quiet     = 4 * time.Second  // a store that says nothing for so long does not answer
	lookShare = 10               // looks take at most one in so many parts of the time
	goOnFor   = time.Minute      // without visitors, who may come again
	maxLines  = 100_000          // of one look
	unseen    = 15 * time.Second // between two looks: nobody knows how claims ended meanwhile
	firstWait = 3 * time.Second  // of a visitor for the first look
)

// watcher looks at all lines once a second while somebody wants to see them.
type watcher struct {
	locks  *fencelock.Client
	always bool
	ended  context.Context
	poked  chan struct{} // holds one: look now

	mu      sync.Mutex
	running bool
	begun   time.Time // when it began to run
	streams int
	wanted  time.Time     // when somebody last wanted to see something
	next    chan struct{} // closed after the next look
	now     *snapshot
	claims  map[claimRef]*claim
	history history
}

// snapshot is what one look found. It does not change.
type snapshot struct {
	lines map[string]*line
	cut   bool      // there are more lines
	at    time.Time // of the last look that the store answered; zero: there was none
	since time.Time // the first look
	down  time.Time // since when the store does not answer; zero: it does
}

// line is a line and the full length of the leases in it.
type line struct {
	fencelock.Line
	full map[string]time.Duration // of each claim, by its ID
	sum  uint64                   // differs if the line does, or if a lease was renewed
}

// claimRef names a claim.
type claimRef struct{ key, id string }

// claim is what is known of a claim in line.
type claim struct {
	fencelock.Standing
	waitedSince time.Time     // zero: it was not seen waiting
	waited      time.Duration // until the grant
	until       time.Time     // end of the lease as last seen
	full        time.Duration
	ended       bool // its end is in the history
}

func newWatcher(ended context.Context, locks *fencelock.Client, always bool) *watcher {
	w := &watcher{
		locks: locks, always: always, ended: ended, poked: make(chan struct{}, 1), next: make(chan struct{}),
		now: &snapshot{}, claims: map[claimRef]*claim{},
	}
	if always {
		w.mu.Lock()
		w.startLocked()
		w.mu.Unlock()
	}
	return w
}

func (w *watcher) startLocked() {
	w.wanted = time.Now()
	if w.running || w.ended.Err() != nil {
		return
	}
	w.running, w.begun = true, w.wanted
	w.now, w.claims = &snapshot{}, map[claimRef]*claim{}
	w.pokeLocked()
	go w.run()
}

func (w *watcher) pokeLocked() {
	select {
	case w.poked <- struct{}{}:
	default:
	}
}

// latest returns the last look and a channel that is closed after the next one. It waits for
// the first look.
func (w *watcher) latest(ctx context.Context) (*snapshot, <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	for {
		w.mu.Lock()
		w.startLocked()
		now, next, begun := w.now, w.next, w.begun
		w.mu.Unlock()
		if !now.at.IsZero() || !now.down.IsZero() {
			return now, next
		}
		select {
		case <-next:
		case <-ctx.Done():
			late := *now
			late.down = begun
			return &late, next
		case <-w.ended.Done():
			return now, next
		}
	}
}

// refresh looks once more and waits for that.
func (w *watcher) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for range 2 { // the look under way may have begun before
		w.mu.Lock()
		w.startLocked()
		w.pokeLocked()
		next := w.next
		w.mu.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
			return
		case <-w.ended.Done():
			return
		}
	}
}

// stream counts a visitor that stays, until the function that it returns is called.
func (w *watcher) stream() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.streams--
		w.wanted = time.Now()
	}
}

// run looks until nobody has wanted to see anything for a while.
func (w *watcher) run() {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-w.ended.Done():
		case <-w.poked:
		case <-timer.C:
		}
		if w.stop() {
			return
		}
		began := time.Now()
		lines, cut, err := w.look()
		if w.ended.Err() == nil {
			w.note(lines, cut, err, began)
		}
		pause := lookEvery
		if err == nil { // else the store was waited for, and it has had no work
			pause = max(pause, (lookShare-1)*time.Since(began))
		}
		timer.Reset(pause)
	}
}

func (w *watcher) stop() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended.Err() == nil && (w.always || w.streams > 0 || time.Since(w.wanted) < goOnFor) {
		return false
	}
	w.running = false
	return true
}

func (w *watcher) look() (lines map[string]*line, cut bool, err error) {
	ctx, cancel := context.WithCancel(w.ended)
	defer cancel()
	impatient := time.AfterFunc(quiet, cancel)
	defer impatient.Stop()
	lines = map[string]*line{}
	for l, err := range w.locks.Lines(ctx, "") {
		if err != nil {
			return nil, false, err
		}
		impatient.Reset(quiet)
		if len(lines) == maxLines {
			return lines, true, nil
		}
		if len(l.Holders)+len(l.Waiters) > 0 {
			lines[l.Key] = &line{Line: l, full: map[string]time.Duration{}}
		}
	}
	return lines, false, nil
}

// note takes a look that began at time began for the present state.
func (w *watcher) note(lines map[string]*line, cut bool, err error, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.now
	now := &snapshot{lines: lines, cut: cut, at: began, since: before.since}
	switch {
	case err != nil:
		*now = *before
		if now.down.IsZero() {
			now.down = began
		}
	case before.at.IsZero():
		now.since = began
		w.compareLocked(now, began, true, false)
	default:
		w.compareLocked(now, began, false, began.Sub(before.at) > unseen)
	}
	w.now = now
	close(w.next)
	w.next = make(chan struct{})
}
