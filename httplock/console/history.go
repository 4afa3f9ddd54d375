package console

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

// what is the kind of an event.
type what string

const (
	eventWaiting  what = "waiting"
	eventAcquired what = "acquired"
	eventReleased what = "released"
	eventLost     what = "lost"   // its lease ran out
	eventLeft     what = "left"   // a waiter has gone
	eventBroken   what = "broken" // here, by a visitor
	eventGone     what = "gone"   // ended while the store did not answer
)

// event is one thing that happened to a claim.
type event struct {
	At     time.Time
	What   what
	Key    string
	Token  fence.Token
	Owner  string
	Note   string
	Reason string
	Waited time.Duration // until the grant; negative: not granted, or not known
	Held   time.Duration // until the end; negative: not ended, or never held
}

const maxEvents = 4096

// history has the last events.
type history struct{ ring []event }

func (h *history) add(e event) {
	if h.ring = append(h.ring, e); len(h.ring) > maxEvents {
		h.ring = append(h.ring[:0], h.ring[len(h.ring)-maxEvents*3/4:]...)
	}
}

// of returns the events of a key, the last one first.
func (w *watcher) eventsOf(key string) []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []event
	for _, e := range slices.Backward(w.history.ring) {
		if e.Key == key {
			list = append(list, e)
		}
	}
	return list
}

var seed = maphash.MakeSeed()

// compareLocked finds out what has happened since the last look. first: there was none. gap:
// it was so long ago that nobody knows how claims ended meanwhile.
func (w *watcher) compareLocked(now *snapshot, at time.Time, first, gap bool) {
	w.endMissingLocked(now, at, gap)
	for key, l := range now.lines {
		var h maphash.Hash
		h.SetSeed(seed)
		for _, s := range l.Claims() {
			ref := claimRef{key, s.ID}
			c := w.claims[ref]
			if c == nil {
				c = &claim{waited: -1}
				w.claims[ref] = c
			}
			w.moveLocked(c, key, s, at, first)
			l.full[s.ID] = c.full
			sumUp(&h, c)
		}
		l.sum = h.Sum64()
	}
}

// endMissingLocked notes the end of the claims that are not in line any more.
func (w *watcher) endMissingLocked(now *snapshot, at time.Time, gap bool) {
	there := make(map[claimRef]bool, len(w.claims))
	for key, l := range now.lines {
		for _, s := range l.Claims() {
			there[claimRef{key, s.ID}] = true
		}
	}
	var missing []claimRef
	for ref := range w.claims {
		if !there[ref] {
			missing = append(missing, ref)
		}
	}
	slices.SortFunc(missing, func(a, b claimRef) int { return cmp.Compare(w.claims[a].Token, w.claims[b].Token) })
	for _, ref := range missing {
		c := w.claims[ref]
		delete(w.claims, ref)
		how := eventReleased
		switch {
		case c.ended:
			continue
		case gap:
			how = eventGone
		case !c.Granted:
			how = eventLeft
		case !at.Before(c.until):
			how = eventLost
		}
		w.endLocked(c, ref.key, how, "", w.endOf(c, now.lines[ref.key], at))
	}
}

// endOf is when a claim ended that a look at time at has not found any more: when the next
// one was granted, if there is one.
func (w *watcher) endOf(c *claim, l *line, at time.Time) time.Time {
	if l == nil || !c.Granted {
		return at
	}
	for _, h := range l.Holders {
		if h.Since.After(c.Since) && h.Since.Before(at) {
			at = h.Since
		}
	}
	return at
}

// sumUp adds what shows of a claim, except what changes with every moment.
func sumUp(h *maphash.Hash, c *claim) {
	maphash.WriteComparable(h, c.ID)
	maphash.WriteComparable(h, c.Token)
	maphash.WriteComparable(h, c.Granted)
	maphash.WriteComparable(h, c.Lingering)
	maphash.WriteComparable(h, c.until.UnixNano())
}

// moveLocked notes what a look found of a claim.
func (w *watcher) moveLocked(c *claim, key string, s fencelock.Standing, at time.Time, first bool) {
	isNew, granted, lingered := c.ID == "", c.Granted, c.Lingering
	c.Standing = s
	if until := at.Add(s.Left); isNew || until.Sub(c.until).Abs() > lookEvery/2 {
		c.until = until // anything less is the inexactness of looking
	}
	c.full = max(c.full, usualLength(s.Left))
	switch {
	case !s.Granted:
		c.waitedSince = s.Since
		if isNew && !first {
			w.addLocked(c, event{At: s.Since, What: eventWaiting, Key: key, Held: -1})
		}
	case isNew && first:
	case isNew || !granted:
		if !c.waitedSince.IsZero() {
			c.waited = max(s.Since.Sub(c.waitedSince), 0)
		} else {
			c.waited = 0 // shorter than the time between two looks
		}
		w.addLocked(c, event{At: s.Since, What: eventAcquired, Key: key, Held: -1})
	}
	if s.Lingering && !lingered && !isNew {
		w.endLocked(c, key, eventReleased, "", at)
	}
}

// addLocked adds an event of a claim.
func (w *watcher) addLocked(c *claim, e event) {
	e.Token, e.Owner, e.Note, e.Waited = c.Token, c.Owner, c.Note, c.waited
	w.history.add(e)
}

// endLocked notes the end of a claim.
func (w *watcher) endLocked(c *claim, key string, what what, reason string, at time.Time) {
	c.ended = true
	held := time.Duration(-1)
	if c.Granted {
		held = max(at.Sub(c.Since), 0)
	}
	w.addLocked(c, event{At: at, What: what, Key: key, Reason: reason, Held: held})
}

// broke notes that a visitor has ended a claim.
func (w *watcher) broke(key string, token fence.Token, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ref, c := range w.claims {
		if ref.key == key && c.HasToken(token) && !c.ended {
			w.endLocked(c, key, eventBroken, reason, time.Now())
			return
		}
	}
	w.history.add(event{
		At: time.Now(), What: eventBroken, Key: key, Token: token, Reason: reason, Waited: -1, Held: -1,
	})
}

// usualLengths are lengths of leases that people choose.
var usualLengths = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second,
	30 * time.Second, 45 * time.Second, time.Minute, 90 * time.Second, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour,
}

// usualLength is the length that a lease with so much left may have: a line does not say it.
func usualLength(left time.Duration) time.Duration {
	i, _ := slices.BinarySearchFunc(usualLengths, left, cmp.Compare[time.Duration])
	if i == len(usualLengths) {
		return left
	}
	return usualLengths[i]
}
