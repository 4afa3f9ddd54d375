package watch

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

// Line is a line as it was found. It does not change.
type Line struct {
	fencelock.Line
	Full map[string]time.Duration // the whole length of each lease, by the ID of its claim
	Sum  uint64                   // differs if the line does, or if a lease was renewed

	steady uint64 // differs if the line does
}

// look is one look at a line, or at all of them.
type look struct {
	at         time.Time // when it began
	first, gap bool      // nothing is known of before, or of how claims have ended since
}

// stage is how far a claim is. It never goes back, so a look that is older than what is known
// changes nothing.
type stage int

const (
	unknown stage = iota
	waits
	holds
	over // also of a claim that lingers
)

// claim is what is known of a claim.
type claim struct {
	fencelock.Standing
	stage       stage
	at          time.Time     // when this was found out
	waitedSince time.Time     // zero: it was not seen waiting
	waited      time.Duration // until the grant; negative: not known
	until       time.Time     // end of the lease as last seen
	full        time.Duration
	notice      *fencelock.Break // that was given through this process, or nil
}

func stageOf(s *fencelock.Standing) stage {
	switch {
	case s.Lingering:
		return over
	case s.Granted:
		return holds
	}
	return waits
}

var seed = maphash.MakeSeed()

// noteLocked notes what a look found of a line.
func (w *Watcher) noteLocked(l *fencelock.Line, how look) {
	w.endMissingLocked(l, how)
	now := &Line{Line: *l, Full: map[string]time.Duration{}}
	var steady, all maphash.Hash
	steady.SetSeed(seed)
	all.SetSeed(seed)
	for _, s := range l.Claims {
		c := w.claimLocked(l.Key, s.Token)
		w.moveLocked(c, l.Key, &s, how)
		now.Full[s.ID] = c.full
		maphash.WriteComparable(&all, c.until.UnixNano())
		since := s.Since.UnixNano()
		s.Left, s.Since = 0, time.Time{} // that changes always, and has a pointer
		maphash.WriteComparable(&steady, s)
		maphash.WriteComparable(&steady, since)
	}
	now.steady = steady.Sum64()
	maphash.WriteComparable(&all, now.steady)
	now.Sum = all.Sum64()
	before, used := w.lines[l.Key], len(now.Full) > 0
	if used {
		w.lines[l.Key] = now
	} else {
		delete(w.lines, l.Key)
	}
	if changed := before == nil && used || before != nil && before.steady != now.steady; changed && !how.first {
		w.log.add(Change{What: LineChanged, Key: l.Key, Line: now})
	}
}

// noteMissingLocked notes that the lines which a look at all has not found are not in use.
func (w *Watcher) noteMissingLocked(found map[string]*fencelock.Line, how look) {
	known := slices.Collect(maps.Keys(w.claims))
	for key := range w.lines {
		if w.claims[key] == nil {
			known = append(known, key)
		}
	}
	for _, key := range known {
		if found[key] == nil {
			w.noteLocked(&fencelock.Line{Key: key}, how)
		}
	}
}

func (w *Watcher) claimLocked(key string, token fence.Token) *claim {
	if w.claims[key] == nil {
		w.claims[key] = map[fence.Token]*claim{}
	}
	c := w.claims[key][token]
	if c == nil {
		c = &claim{waited: -1}
		w.claims[key][token] = c
	}
	return c
}

// moveLocked notes what is known of a claim now.
func (w *Watcher) moveLocked(c *claim, key string, s *fencelock.Standing, how look) {
	before, now := c.stage, stageOf(s)
	if now < before {
		return
	}
	if until := how.at.Add(s.Left); before == unknown || until.Sub(c.until).Abs() > lookEvery/2 {
		c.until = until // anything less is the inexactness of looking
	}
	c.full = max(c.full, usualLength(s.Left))
	c.Standing, c.stage, c.at = *s, now, time.Now()
	if now == waits {
		c.waitedSince = s.Since
	}
	if now == before || how.first {
		return
	}
	if now == waits {
		w.addLocked(c, Change{What: Waiting, At: s.Since, Key: key, Held: -1})
		return
	}
	if before < holds {
		c.waited = 0 // shorter than the time between two looks
		if !c.waitedSince.IsZero() {
			c.waited = max(s.Since.Sub(c.waitedSince), 0)
		}
		w.addLocked(c, Change{What: Acquired, At: s.Since, Key: key, Held: -1})
	}
	if now == over {
		w.endLocked(c, Change{What: Released, At: how.at, Key: key})
	}
}

// endMissingLocked notes the end of the claims that a look has not found in line any more.
func (w *Watcher) endMissingLocked(l *fencelock.Line, how look) {
	missing := maps.Clone(w.claims[l.Key])
	for _, s := range l.Claims {
		delete(missing, s.Token)
	}
	for _, token := range slices.Sorted(maps.Keys(missing)) {
		c := missing[token]
		if !c.at.Before(how.at) {
			continue // the look may be older than the claim
		}
		delete(w.claims[l.Key], token)
		if c.stage == over {
			continue
		}
		e := Change{What: Released, At: c.endedBy(l, how.at), Key: l.Key}
		e.RanOut = c.stage == holds && !how.at.Before(c.until)
		switch {
		case how.gap:
			e.What = Gone
		case c.stage == waits:
			e.What = Left
		case e.RanOut:
			e.What = Lost
		}
		w.endLocked(c, e)
	}
	if len(w.claims[l.Key]) == 0 {
		delete(w.claims, l.Key)
	}
}

// endedBy is when a claim ended that a look at time at has not found any more: when the next
// one was granted, if there is one.
func (c *claim) endedBy(l *fencelock.Line, at time.Time) time.Time {
	if c.stage != holds {
		return at
	}
	for _, h := range l.Claims {
		if h.Granted && h.Since.After(c.Since) && h.Since.Before(at) {
			at = h.Since
		}
	}
	return at
}

// addLocked adds a change of a claim to the log.
func (w *Watcher) addLocked(c *claim, e Change) {
	e.Standing, e.Waited = c.Standing, c.waited
	w.log.add(e)
}

// endLocked adds the end of a claim. One that was given notice was broken, if it has run out or
// lingers: a holder that leaves in time does neither.
func (w *Watcher) endLocked(c *claim, e Change) {
	if c.notice != nil && (e.What == Lost || e.What == Released && c.Lingering) {
		e.What, e.Reason, e.RanOut = Broken, c.notice.Reason, false
	}
	e.Held = -1
	if c.Granted {
		e.Held = max(e.At.Sub(c.Since), 0)
	}
	c.stage, c.at = over, time.Now()
	w.addLocked(c, e)
}

// Granted notes a grant before a look finds it.
func (w *Watcher) Granted(key string, s fencelock.Standing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return
	}
	w.moveLocked(w.claimLocked(key, s.Token), key, &s, look{at: time.Now()})
	w.pokeLocked(key)
}

// Ended notes that a claim was released or broken, before a look finds it.
func (w *Watcher) Ended(key string, token fence.Token, what What, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return
	}
	c := w.findLocked(key, token)
	if c.stage != over {
		if what == Released && c.stage == waits {
			what = Left
		}
		w.endLocked(c, Change{What: what, At: time.Now(), Key: key, Reason: reason})
	}
	w.pokeLocked(key)
}

// Broke notes a break before a look finds it. A holder that has notice holds the key until that is
// over.
func (w *Watcher) Broke(key string, token fence.Token, how fencelock.Break) {
	w.mu.Lock()
	noticed := false
	if w.running && how.Notice > 0 {
		if c := w.findLocked(key, token); c.stage == holds {
			c.notice, noticed = &how, true
			e := Change{What: Revoked, At: time.Now(), Key: key, Held: -1}
			e.Reason, e.Notice = how.Reason, how.Notice
			w.addLocked(c, e)
			w.pokeLocked(key)
		}
	}
	w.mu.Unlock()
	if !noticed {
		w.Ended(key, token, Broken, how.Reason)
	}
}

// findLocked returns the claim whose span has token in it.
func (w *Watcher) findLocked(key string, token fence.Token) *claim {
	for _, c := range w.claims[key] {
		if c.HasToken(token) {
			return c
		}
	}
	c := w.claimLocked(key, token)
	c.Token = token
	return c
}

// Poke has the line of key looked at now.
func (w *Watcher) Poke(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running {
		w.pokeLocked(key)
	}
}

func (w *Watcher) pokeLocked(key string) {
	w.pokes[key] = true
	w.wakeLocked()
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
