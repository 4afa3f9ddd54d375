package line

import (
	"maps"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Tombstone keeps a claim out of its line until a time, and says why: it left before a delayed Enter arrived, or an
// operator broke it.
type Tombstone struct {
	Until time.Duration // see Step.Mono
	Gone  driver.GoneError
	Left  bool // the claim was under notice, which Gone tells of, and has left in time
}

// bar keeps id out. It never shortens an earlier tombstone, and the reason that
// an operator gave stays. Each time that the number of tombstones has doubled, it forgets
// those that are over.
func (l *Line) bar(s *Step, id string, until time.Duration, gone driver.GoneError) {
	if l.Tombstones == nil {
		l.Tombstones = make(map[string]Tombstone)
	}
	if len(l.Tombstones) >= l.sweepAt {
		l.Sweep(s)
		l.sweepAt = max(64, 2*len(l.Tombstones))
	}
	t := Tombstone{Until: until, Gone: gone}
	if old, ok := l.Tombstones[id]; ok {
		t.Until = max(until, old.Until)
		if !gone.Broken {
			t.Gone, t.Left = old.Gone, old.Left
		}
	}
	l.Tombstones[id] = t
}

// Sweep forgets the tombstones that are over.
func (l *Line) Sweep(s *Step) {
	maps.DeleteFunc(l.Tombstones, func(_ string, t Tombstone) bool { return t.over(s) })
}

// over reports whether t has surely ended.
func (t *Tombstone) over(s *Step) bool { return t.Until <= s.Mono-s.Grace }

// barred says why id may not enter.
func (l *Line) barred(s *Step, id string) (gone driver.GoneError, ok bool) {
	t, ok := l.Tombstones[id]
	if !ok || t.over(s) {
		return driver.GoneError{}, false
	}
	return t.Gone, true
}
