package sqllock

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// lastToken is where a counter can only have been set by hand: 280 000 years from now.
const lastToken = 1<<63 - 1 - driver.MaxSpan

// check refuses a row that no step has written, before its numbers decide who holds a lock.
func (c *row) check(key string) error {
	switch {
	case c.weight < 1 || c.capacity < c.weight || c.capacity > driver.RW:
		return damaged(key, fmt.Errorf("weight %d of %d", c.weight, c.capacity))
	case c.span < 1 || c.span > driver.MaxSpan || c.token < 1 || c.token > lastToken-c.span:
		return damaged(key, fmt.Errorf("token %d of span %d", c.token, c.span))
	}
	return nil
}

// damaged says that the rows of a line are not what fencelock has written.
func damaged(key string, err error) error {
	return permanent(fmt.Errorf("the rows of lock %q are damaged (%w): delete its rows from all tables, then try again",
		key, err))
}

func permanent(err error) error { return driver.Permanent(err) }

// busy describes c, the first of its line, to a claim with that many ahead.
func (c *row) busy(left time.Duration, ahead int) *driver.BusyError {
	return &driver.BusyError{
		Standing: driver.Standing{
			Claim: driver.Claim{Owner: c.owner, Note: c.note},
			Token: c.token,
			Since: time.UnixMicro(c.since),
			Left:  left,
		},
		Ahead: ahead,
	}
}

// snapshot is a line at one moment: also one that nobody is in.
type snapshot struct {
	key    string
	now    int64 // µs since 1970, on the clock that leases count on
	last   int64 // the largest token drawn
	mark   driver.Mark
	claims []row // in order of arrival, also those that have expired
}

func (s *snapshot) begin() { *s = snapshot{key: s.key} }

// add takes the next row: of the line, and of a claim if anybody is in it.
func (s *snapshot) add(r *row) error {
	if r.now == 0 {
		return errShort
	}
	s.now, s.key, s.last, s.mark = r.now, r.key, max(s.last, r.last), r.mark
	if r.token == 0 && r.id == "" {
		return nil
	}
	s.claims = append(s.claims, *r)
	return r.check(s.key)
}

// line shows s to people. Only live claims are shown, and those are shown as granted which
// the next step would find granted.
func (s *snapshot) line() driver.Line {
	l := driver.Line{Key: s.key, Last: s.last, Mark: s.mark}
	before := int64(0)
	for i := range s.claims {
		c := &s.claims[i]
		l.Last = max(l.Last, c.token+c.span-1)
		if c.left(s.now) <= 0 {
			continue
		}
		before += c.weight
		l.Claims = append(l.Claims, driver.Standing{
			Claim: driver.Claim{
				ID:       driverutil.ShortID(c.id),
				Owner:    c.owner,
				Note:     c.note,
				Capacity: c.capacity,
				Weight:   c.weight,
				Span:     c.span,
			},
			Token:     c.token,
			Granted:   c.granted || before <= c.capacity,
			Lingering: c.lingering,
			Since:     time.UnixMicro(c.since),
			Left:      c.left(s.now),
		})
	}
	return l
}

// stale reports that only a purge can tell who is granted: a claim has expired and is not
// removed yet, or a claim fits and is not granted, because rows were deleted by hand.
func (s *snapshot) stale() bool {
	before := int64(0)
	return slices.ContainsFunc(s.claims, func(c row) bool {
		before += c.weight
		return c.left(s.now) <= 0 || !c.granted && before <= c.capacity
	})
}

// old reports whether s was read before a claim of ws drew its token, which is in it or was.
func (s *snapshot) old(ws []*waiter) bool {
	return s.last > 0 && slices.ContainsFunc(ws, func(w *waiter) bool { return s.last < w.t.Token })
}

// quiet returns how long ago somebody joined the line or was granted.
func (s *snapshot) quiet() time.Duration {
	last := int64(0)
	for i := range s.claims {
		last = max(last, s.claims[i].since)
	}
	return micros(max(s.now-last, 0))
}
