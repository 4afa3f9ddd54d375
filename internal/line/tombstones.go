package line

import (
	"maps"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Tombstones are the claims that may not enter for a while: they left before a
// delayed Enter arrived, or an operator broke them. The zero value is ready.
type Tombstones struct {
	ByID    map[string]Tombstone
	sweepAt int // the number of tombstones at which put sweeps next
}

// Tombstone keeps one claim out until a time, and says why.
type Tombstone struct {
	Until time.Duration // see Step.Mono
	Gone  driver.GoneError
}

// put keeps id out. It never shortens an earlier tombstone, and the reason that
// an operator gave stays. Each time that the number of tombstones has doubled, it forgets
// those that are over.
func (ts *Tombstones) put(s *Step, id string, until time.Duration, gone driver.GoneError) {
	if ts.ByID == nil {
		ts.ByID = make(map[string]Tombstone)
	}
	if len(ts.ByID) >= ts.sweepAt {
		ts.Sweep(s)
		ts.sweepAt = max(64, 2*len(ts.ByID))
	}
	if old, ok := ts.ByID[id]; ok {
		until = max(until, old.Until)
		if !gone.Broken {
			gone = old.Gone
		}
	}
	ts.ByID[id] = Tombstone{until, gone}
}

// Sweep forgets those that are over.
func (ts *Tombstones) Sweep(s *Step) {
	maps.DeleteFunc(ts.ByID, func(_ string, t Tombstone) bool { return t.Until <= s.Mono })
}

// find says why id may not enter.
func (ts *Tombstones) find(s *Step, id string) (gone driver.GoneError, ok bool) {
	t, ok := ts.ByID[id]
	if !ok || t.Until <= s.Mono {
		return driver.GoneError{}, false
	}
	return t.Gone, true
}
