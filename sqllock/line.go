package sqllock

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// claim is one row of the line of a key.
type claim struct {
	lease
	token, span      int64
	id               string
	capacity, weight int64
	granted          int64 // see the schema
	lingering        bool
	since            int64 // µs since 1970
	node             int64
	mark             []byte
	owner, note      string
	ahead            int // rows before it
}

// check refuses a row that no step of ours has written, before its numbers decide
// who holds a lock.
func (c *claim) check(key string) error {
	switch {
	case c.weight < 1 || c.capacity < c.weight || c.capacity > driver.RW:
		return damaged(key, fmt.Errorf("weight %d of %d", c.weight, c.capacity))
	case c.span < 1 || c.span > driver.MaxSpan || c.token < 1 || c.token > lastToken-c.span:
		return damaged(key, fmt.Errorf("token %d of span %d", c.token, c.span))
	case c.granted < 0 || c.granted > 2:
		return damaged(key, fmt.Errorf("granted is %d", c.granted))
	}
	return nil
}

// lastToken is where a counter can only have been set by hand: 280 000 years from now.
const lastToken = 1<<63 - 1 - driver.MaxSpan

// damaged says that the rows of a line are not what fencelock has written.
func damaged(key string, err error) error {
	return &driver.PermanentError{Err: fmt.Errorf("the rows of lock %q are damaged (%w): delete its rows from all tables, then try again", key, err)}
}

// standing shows c to people.
func (c *claim) standing(now instant) driver.Standing {
	return driver.Standing{
		ID:        driver.ShortID(c.id),
		Owner:     c.owner,
		Note:      c.note,
		Capacity:  c.capacity,
		Weight:    c.weight,
		Token:     c.token,
		Span:      c.span,
		Granted:   c.granted > 0,
		Lingering: c.lingering,
		Since:     time.UnixMicro(c.since),
		Left:      c.left(now),
	}
}

// busy describes c, the first of its line, to a claim with that many ahead.
func (c *claim) busy(ahead int, now instant) *driver.BusyError {
	return &driver.BusyError{
		Owner: c.owner,
		Note:  c.note,
		Token: c.token,
		Since: time.UnixMicro(c.since),
		Left:  c.left(now),
		Ahead: ahead,
	}
}

// show makes a line of its rows, in order of arrival. Only live claims are shown,
// and those are shown as granted which the next step would find granted.
func show(l *driver.Line, rows []claim, now instant) error {
	before := int64(0)
	for i := range rows {
		c := &rows[i]
		if err := c.check(l.Key); err != nil {
			return err
		}
		l.Last = max(l.Last, c.token+c.span-1)
		if c.left(now) <= 0 {
			continue
		}
		before += c.weight
		s := c.standing(now)
		s.Granted = s.Granted || before <= c.capacity
		l.Claims = append(l.Claims, s)
	}
	return nil
}

// admission finds the waiting claims of a line that fit now. It is shown the claims
// in order of arrival.
type admission struct {
	mixed  bool // claims of different capacities are in line
	before int64
	open   bool // the last run goes on
	fit    []claim
	runs   []tokenRange
}

// tokenRange is a run of claims that are granted together, by token.
type tokenRange struct{ first, last int64 }

// add takes the next claim, and returns false if nobody behind it can fit. That is
// so at the first claim that does not fit, if all have one capacity. With two sizes
// of one semaphore in line, a later claim may fit where an earlier one does not:
// stopping there would leave it asleep beside a lock that is its own.
func (a *admission) add(c *claim) bool {
	a.before += c.weight
	switch {
	case c.granted > 0:
	case a.before <= c.capacity:
		a.fit = append(a.fit, *c)
		if !a.open {
			a.runs = append(a.runs, tokenRange{first: c.token})
		}
		a.runs[len(a.runs)-1].last = c.token
		a.open = true
	case !a.mixed:
		return false
	default:
		a.open = false
	}
	return true
}
