package watch

import (
	"crypto/rand"
	"maps"
	"slices"
	"time"

	"github.com/fencelock/fencelock"
)

// What is the kind of a change.
type What string

// Kinds of changes.
const (
	Waiting  What = "waiting"
	Acquired What = "acquired"
	Released What = "released"
	Lost     What = "lost"    // its lease ran out
	Left     What = "left"    // a waiter has gone
	Broken   What = "broken"  // through this process
	Revoked  What = "revoked" // through this process: notice was given
	Gone     What = "gone"    // ended while the store did not answer

	LineChanged What = "line"
)

// Change is one thing that happened to a claim, or to a line.
type Change struct {
	What               What
	Key                string
	At                 time.Time
	fencelock.Standing // of the claim, as last seen
	Reason             string
	Waited             time.Duration // until the grant; negative: not granted, or not known
	Held               time.Duration // until the end; negative: not ended, or never held
	Notice             time.Duration // of Revoked
	RanOut             bool          // its lease ran out, as far as is known
	Line               *Line         // of LineChanged

	n uint64
}

// Position names a change. The zero Position names none.
type Position struct {
	Epoch string
	N     uint64
}

const (
	keptChanges = 8192 // at least
	maxChanges  = keptChanges * 3 / 2
)

// log has the last changes. Those of a Watcher that was stopped have no positions any more.
type log struct {
	ring  []Change
	epoch string
	first uint64        // of the epoch
	last  uint64        // that was added
	more  chan struct{} // closed when a change is added
}

func (l *log) begin() { l.epoch, l.first = rand.Text()[:8], l.last+1 }

func (l *log) add(c Change) {
	l.last++
	c.n = l.last
	if l.ring = append(l.ring, c); len(l.ring) > maxChanges {
		l.ring = append(l.ring[:0], l.ring[len(l.ring)-keptChanges:]...)
	}
	close(l.more)
	l.more = make(chan struct{})
}

// After returns the changes after p. If they are not there any more, it returns all lines
// instead, and whole.
func (w *Watcher) After(p Position) (list []Change, all []*Line, last Position, whole bool, more <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.log
	last, more = Position{l.epoch, l.last}, l.more
	oldest := max(l.first, l.last+1-uint64(len(l.ring)))
	if p.Epoch == l.epoch && p.N+1 >= oldest && p.N <= l.last {
		return slices.Clone(l.ring[len(l.ring)-int(l.last-p.N):]), nil, last, false, more
	}
	return nil, slices.Collect(maps.Values(w.lines)), last, true, more
}

// Position returns the position of a change that After has returned with last.
func (c *Change) Position(last Position) Position { return Position{last.Epoch, c.n} }

// Of returns what happened to the claims of a key, the last change first.
func (w *Watcher) Of(key string) (list []Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range slices.Backward(w.log.ring) {
		if c.Key == key && c.What != LineChanged {
			list = append(list, c)
		}
	}
	return list
}
