package memlock

import (
	"maps"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// tombstones are the claims that may not enter for a while: they left before a
// delayed Enter arrived, or an operator broke them. The zero value is ready.
type tombstones struct {
	byRef   map[driver.ClaimRef]tombstone
	sweepAt int // the number of tombstones at which put sweeps next
}

// tombstone keeps one claim out until an instant, and says why.
type tombstone struct {
	until time.Duration
	gone  driver.GoneError
}

// put keeps ref out. It never shortens an earlier tombstone, and the reason that
// an operator gave stays. Each time that the number of tombstones has doubled, it forgets
// those that are over.
func (s *tombstones) put(ref driver.ClaimRef, until time.Duration, gone driver.GoneError, now instant) {
	if s.byRef == nil {
		s.byRef = make(map[driver.ClaimRef]tombstone)
	}
	if len(s.byRef) >= s.sweepAt {
		maps.DeleteFunc(s.byRef, func(_ driver.ClaimRef, t tombstone) bool { return t.until <= now.mono })
		s.sweepAt = max(64, 2*len(s.byRef))
	}
	if old, ok := s.byRef[ref]; ok {
		until = max(until, old.until)
		if !gone.Broken {
			gone = old.gone
		}
	}
	s.byRef[ref] = tombstone{until, gone}
}

// find says why ref may not enter.
func (s *tombstones) find(ref driver.ClaimRef, now instant) (gone driver.GoneError, ok bool) {
	t, ok := s.byRef[ref]
	if !ok || t.until <= now.mono {
		return driver.GoneError{}, false
	}
	return t.gone, true
}
