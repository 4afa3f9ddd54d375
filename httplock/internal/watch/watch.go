// Package watch looks at all lines of a store once a second, for the API and the console
// together, and finds out what has changed.
package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

const (
	lookEvery = time.Second
	quiet     = 4 * time.Second  // a store that says nothing for so long does not answer
	lookShare = 10               // looks take at most one in so many parts of the time
	goOnFor   = time.Minute      // without viewers, who may come again
	maxLines  = 100_000          // of one look
	unseen    = 15 * time.Second // between two looks: nobody knows how claims ended meanwhile
	firstWait = 3 * time.Second  // of a viewer for the first look
)

// Watcher looks at all lines once a second while somebody wants to see them. Its methods may
// be called from many goroutines at once.
type Watcher struct {
	locks  *fencelock.Client
	always bool
	ended  context.Context
	poked  chan struct{} // holds one: look now

	mu      sync.Mutex
	running bool
	begun   time.Time // when it began to run
	viewers int
	wanted  time.Time       // when somebody last wanted to see something
	whole   bool            // look at all lines now
	pokes   map[string]bool // look at these now
	looked  chan struct{}   // closed after the next look at all lines
	state   State           // without its lines
	lines   map[string]*Line
	claims  map[string]map[fence.Token]*claim
	log     log
}

// State is what is known of a store.
type State struct {
	Lines []*Line   // that are in use, in any order
	Cut   bool      // there are more
	At    time.Time // of the last look that the store answered; zero: there was none
	Since time.Time // the first look
	Down  time.Time // since when the store cannot be read; zero: it can
	// Refuses says that the store answers all the same, and refuses.
	Refuses bool
}

// New returns a Watcher that ends with ctx. It looks while somebody wants to see something, and
// a minute longer; or always.
func New(ctx context.Context, locks *fencelock.Client, always bool) *Watcher {
	w := &Watcher{
		locks: locks, always: always, ended: ctx, poked: make(chan struct{}, 1), looked: make(chan struct{}),
	}
	w.log.more = make(chan struct{})
	if always {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.startLocked()
	}
	return w
}

func (w *Watcher) startLocked() {
	w.wanted = time.Now()
	if w.running || w.ended.Err() != nil {
		return
	}
	w.running, w.begun, w.state = true, w.wanted, State{}
	w.lines, w.claims, w.pokes = map[string]*Line{}, map[string]map[fence.Token]*claim{}, map[string]bool{}
	w.log.begin()
	w.whole = true
	w.wakeLocked()
	go w.run()
}

func (w *Watcher) wakeLocked() {
	select {
	case w.poked <- struct{}{}:
	default:
	}
}

// Stay counts a viewer that stays, until the function that it returns is called.
func (w *Watcher) Stay() (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.startLocked()
	w.viewers++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.viewers--
		w.wanted = time.Now()
	}
}

// Latest returns what is known, with the lines whose keys pick wants, and a channel that is
// closed after the next look at all lines. It waits for the first look.
func (w *Watcher) Latest(ctx context.Context, pick func(key string) bool) (*State, <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	for {
		now, looked, begun := w.present(pick)
		if !now.At.IsZero() || !now.Down.IsZero() {
			return now, looked
		}
		select {
		case <-looked:
		case <-ctx.Done():
			now.Down = begun
			return now, looked
		case <-w.ended.Done():
			return now, looked
		}
	}
}

func (w *Watcher) present(pick func(key string) bool) (now *State, looked <-chan struct{}, begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.startLocked()
	s := w.state
	for key, l := range w.lines {
		if pick(key) {
			s.Lines = append(s.Lines, l)
		}
	}
	return &s, w.looked, w.begun
}

// Refresh looks at all lines once more and waits for that.
func (w *Watcher) Refresh(ctx context.Context) {
	for range 2 { // the look under way may have begun before
		w.mu.Lock()
		w.startLocked()
		w.whole = true
		w.wakeLocked()
		looked := w.looked
		w.mu.Unlock()
		select {
		case <-looked:
		case <-ctx.Done():
			return
		case <-w.ended.Done():
			return
		}
	}
}

// run looks until nobody has wanted to see anything for a while.
func (w *Watcher) run() {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		due := false
		select {
		case <-w.ended.Done():
		case <-w.poked:
		case <-timer.C:
			due = true
		}
		whole, keys, stop := w.work()
		if stop {
			return
		}
		for key := range keys {
			w.lookAt(key)
		}
		if due || whole {
			timer.Reset(w.lookAtAll())
		}
	}
}

// work returns what is to be looked at, besides what is due.
func (w *Watcher) work() (whole bool, keys map[string]bool, stop bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended.Err() != nil || !w.always && w.viewers == 0 && time.Since(w.wanted) >= goOnFor {
		w.running = false
		return false, nil, true
	}
	whole, keys = w.whole, w.pokes
	w.whole, w.pokes = false, map[string]bool{}
	return whole, keys, false
}

// lookAt looks at one line. What fails is left to the next look at all lines.
func (w *Watcher) lookAt(key string) {
	ctx, cancel := context.WithTimeout(w.ended, quiet)
	defer cancel()
	began := time.Now()
	l, err := w.locks.Line(ctx, key)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(&l, look{at: began})
}

// lookAtAll looks at all lines, and returns the pause until the next look.
func (w *Watcher) lookAtAll() (pause time.Duration) {
	began := time.Now()
	lines, cut, err := w.read()
	if w.ended.Err() != nil {
		return lookEvery
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		close(w.looked)
		w.looked = make(chan struct{})
	}()
	if err != nil { // the store was waited for, and it has had no work
		if w.state.Down.IsZero() {
			w.state.Down = began
		}
		w.state.Refuses = errors.Is(err, fencelock.ErrRefused)
		return lookEvery
	}
	before := w.state.At
	how := look{at: began, first: before.IsZero(), gap: !before.IsZero() && began.Sub(before) > unseen}
	if how.first {
		w.state.Since = began
	}
	w.state.At, w.state.Cut, w.state.Down, w.state.Refuses = began, cut, time.Time{}, false
	for _, l := range lines {
		w.noteLocked(l, how)
	}
	if !cut {
		w.noteMissingLocked(lines, how)
	}
	return max(lookEvery, (lookShare-1)*time.Since(began))
}

func (w *Watcher) read() (lines map[string]*fencelock.Line, cut bool, err error) {
	ctx, cancel := context.WithCancel(w.ended)
	defer cancel()
	impatient := time.AfterFunc(quiet, cancel)
	defer impatient.Stop()
	lines = map[string]*fencelock.Line{}
	for l, err := range w.locks.Lines(ctx, "") {
		if err != nil {
			return nil, false, err
		}
		impatient.Reset(quiet)
		if len(lines) == maxLines {
			return lines, true, nil
		}
		if len(l.Claims) > 0 {
			lines[l.Key] = &l
		}
	}
	return lines, false, nil
}
