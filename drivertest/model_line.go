package drivertest

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// naive is the laws of package driver in the fewest words: a slice per line, and
// sums made anew for every question. It knows nothing of how a backend works.
type naive struct {
	lines map[string]*naiveLine
}

type naiveLine struct {
	claims []*naiveClaim // in order of arrival
	last   int64
	mark   driver.Mark
	writer string // the id that wrote mark
	rests  map[string]*naiveRest
}

type naiveClaim struct {
	driver.Claim
	token     int64
	expires   time.Time
	admitted  bool // has been granted
	mark      driver.Mark
	lingering bool
}

// naiveRest keeps an id out.
type naiveRest struct {
	until  time.Time
	broken time.Time // Break keeps it out until then, zero if it does not
	reason string
}

func newNaive() *naive { return &naive{lines: map[string]*naiveLine{}} }

// line is the line of key without those whose lease has ended.
func (m *naive) line(key string, now time.Time) *naiveLine {
	l := m.lines[key]
	if l == nil {
		l = &naiveLine{rests: map[string]*naiveRest{}}
		m.lines[key] = l
	}
	l.claims = slices.DeleteFunc(l.claims, func(c *naiveClaim) bool { return !c.expires.After(now) })
	l.settle()
	return l
}

// settle notes who has become granted, with the mark of that moment.
func (l *naiveLine) settle() {
	for i, c := range l.claims {
		if !c.admitted && l.granted(i) {
			c.admitted = true
			c.mark = l.mark
		}
	}
}

// granted is the rule of the line.
func (l *naiveLine) granted(i int) bool {
	sum := l.claims[i].Weight
	for _, before := range l.claims[:i] {
		sum += before.Weight
	}
	return sum <= l.claims[i].Capacity
}

// find returns the place and the claim of id, or -1 and nil.
func (l *naiveLine) find(id string) (int, *naiveClaim) {
	i := slices.IndexFunc(l.claims, func(c *naiveClaim) bool { return c.ID == id })
	if i < 0 {
		return i, nil
	}
	return i, l.claims[i]
}

// mixed reports whether somebody in line has another capacity than c.
func (l *naiveLine) mixed(c *naiveClaim) bool {
	return slices.ContainsFunc(l.claims, func(d *naiveClaim) bool { return d.Capacity != c.Capacity })
}

// resting returns the rest of an id that is still kept out.
func (l *naiveLine) resting(id string, now time.Time) *naiveRest {
	r := l.rests[id]
	if r == nil || !r.until.After(now) {
		return nil
	}
	return r
}

// lay lays id to rest.
func (l *naiveLine) lay(id string, until time.Time) *naiveRest {
	r := l.rests[id]
	if r == nil {
		r = &naiveRest{}
		l.rests[id] = r
	}
	if until.After(r.until) {
		r.until = until
	}
	return r
}

// remove takes the claim at i out.
func (l *naiveLine) remove(i int) {
	l.claims = slices.Delete(l.claims, i, i+1)
	l.settle()
}

// renew starts a lease again.
func (c *naiveClaim) renew(ttl time.Duration, now time.Time) {
	if end := now.Add(ttl); end.After(c.expires) {
		c.expires = end
	}
}

// fits reports whether a new claim would be granted at once.
func (l *naiveLine) fits(c driver.Claim) bool {
	sum := c.Weight
	for _, before := range l.claims {
		sum += before.Weight
	}
	return sum <= c.Capacity
}

// otherKind reports whether somebody in line is of another kind than c.
func (l *naiveLine) otherKind(c driver.Claim) bool {
	return slices.ContainsFunc(l.claims, func(d *naiveClaim) bool {
		return (d.Capacity == driver.RW) != (c.Capacity == driver.RW)
	})
}
