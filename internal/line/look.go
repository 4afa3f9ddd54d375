package line

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// IdleFor is how long a line is kept after the clock has passed its last token. A
// clock that is set back by less cannot make a new line draw an older token.
const IdleFor = 24 * time.Hour

// ForgetEvery is how often a process removes idle lines from a store. Tests that count requests
// set it before the first Backend.
var ForgetEvery = time.Hour

// Blank reports whether l is as good as the line of a key that was never used.
func (l *Line) Blank() bool {
	return len(l.Claims) == 0 && l.Last == 0 && l.Mark == "" && len(l.Tombstones) == 0
}

// Idle reports whether l may be forgotten. It purges.
func (l *Line) Idle(s *Step) bool {
	l.Purge(s)
	l.Sweep(s)
	return len(l.Claims) == 0 && l.Mark == "" && len(l.Tombstones) == 0 &&
		s.Wall.UnixMicro()-l.Last > IdleFor.Microseconds()
}

// Ticket describes where c stands.
func (l *Line) Ticket(s *Step, c *Claim) driver.Ticket {
	t := driver.Ticket{
		Claim:   c.Claim,
		Token:   c.Token,
		Granted: c.Granted,
		Left:    c.Expires - s.Mono,
	}
	if c.Granted {
		t.Mark = c.Mark
		return t
	}
	t.Ahead = l.Ahead(c)
	t.Head = l.busy(s, t.Ahead)
	return t
}

// busy describes the first claim to one that has so many ahead.
func (l *Line) busy(s *Step, ahead int) *driver.BusyError {
	first := l.Claims[0]
	return &driver.BusyError{
		Standing: driver.Standing{
			Claim: driver.Claim{Owner: first.Owner, Note: first.Note, Trace: first.Trace},
			Token: first.Token,
			Since: first.Since,
			Left:  first.Expires - s.Mono,
		},
		Ahead: ahead,
	}
}

// Describe shows the line of key.
func (l *Line) Describe(s *Step, key string) driver.Line {
	d := driver.Line{Key: key, Last: l.Last, Mark: l.Mark}
	for _, c := range l.Claims {
		reason := ""
		if c.Noticed && !c.Lingering {
			reason = l.Tombstones[c.ID].Gone.Reason
		}
		d.Claims = append(d.Claims, driver.Standing{
			Claim: driver.Claim{
				ID:        driverutil.ShortID(c.ID),
				Owner:     c.Owner,
				Note:      c.Note,
				Trace:     c.Trace,
				LockDelay: c.LockDelay,
				Capacity:  c.Capacity,
				Weight:    c.Weight,
				Span:      c.Span,
			},
			Token:     c.Token,
			Granted:   c.Granted,
			Lingering: c.Lingering,
			Since:     c.Since,
			Left:      c.Expires - s.Mono,
			Reason:    reason,
		})
	}
	return d
}
