package drivertest

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// model is the laws of package driver in the fewest words: a slice per line, and
// sums made anew for every question. It knows nothing of how a backend works.
type model struct {
	lines map[string]*modelLine
}

type modelLine struct {
	claims     []*modelClaim // in order of arrival
	last       int64
	mark       driver.Mark
	writer     string // the id that wrote mark
	tombstones map[string]*modelTombstone
}

type modelClaim struct {
	driver.Claim
	token     int64
	expires   time.Time
	admitted  bool // has been granted
	mark      driver.Mark
	lingering bool
}

// modelTombstone keeps an id out.
type modelTombstone struct {
	until  time.Time
	broken time.Time // Break keeps it out until then, zero if it does not
	reason string
}

func newModel() *model { return &model{lines: map[string]*modelLine{}} }

// line is the line of key without those whose lease has ended.
func (m *model) line(key string, now time.Time) *modelLine {
	l := m.lines[key]
	if l == nil {
		l = &modelLine{tombstones: map[string]*modelTombstone{}}
		m.lines[key] = l
	}
	l.claims = slices.DeleteFunc(l.claims, func(c *modelClaim) bool { return !c.expires.After(now) })
	l.settle()
	return l
}

// settle notes who has become granted, with the mark of that moment.
func (l *modelLine) settle() {
	for i, c := range l.claims {
		if !c.admitted && l.granted(i) {
			c.admitted = true
			c.mark = l.mark
		}
	}
}

// granted is the rule of the line.
func (l *modelLine) granted(i int) bool {
	sum := l.claims[i].Weight
	for _, before := range l.claims[:i] {
		sum += before.Weight
	}
	return sum <= l.claims[i].Capacity
}

// find returns the place and the claim of id, or -1 and nil.
func (l *modelLine) find(id string) (int, *modelClaim) {
	i := slices.IndexFunc(l.claims, func(c *modelClaim) bool { return c.ID == id })
	if i < 0 {
		return i, nil
	}
	return i, l.claims[i]
}

// mixed reports whether somebody in line has another capacity than c.
func (l *modelLine) mixed(c *modelClaim) bool {
	return slices.ContainsFunc(l.claims, func(d *modelClaim) bool { return d.Capacity != c.Capacity })
}

// tombstone returns the tombstone of an id that is still kept out.
func (l *modelLine) tombstone(id string, now time.Time) *modelTombstone {
	r := l.tombstones[id]
	if r == nil || !r.until.After(now) {
		return nil
	}
	return r
}

// putTombstone keeps id out.
func (l *modelLine) putTombstone(id string, until time.Time) *modelTombstone {
	r := l.tombstones[id]
	if r == nil {
		r = &modelTombstone{}
		l.tombstones[id] = r
	}
	if until.After(r.until) {
		r.until = until
	}
	return r
}

// remove takes the claim at i out.
func (l *modelLine) remove(i int) {
	l.claims = slices.Delete(l.claims, i, i+1)
	l.settle()
}

// renew starts a lease again.
func (c *modelClaim) renew(ttl time.Duration, now time.Time) {
	if end := now.Add(ttl); end.After(c.expires) {
		c.expires = end
	}
}

// fits reports whether a new claim would be granted at once.
func (l *modelLine) fits(c driver.Claim) bool {
	sum := c.Weight
	for _, before := range l.claims {
		sum += before.Weight
	}
	return sum <= c.Capacity
}

// otherKind reports whether somebody in line is of another kind than c.
func (l *modelLine) otherKind(c driver.Claim) bool {
	return slices.ContainsFunc(l.claims, func(d *modelClaim) bool {
		return (d.Capacity == driver.RW) != (c.Capacity == driver.RW)
	})
}
