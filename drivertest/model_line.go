package drivertest

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// modelLine is the laws of package driver in the fewest words: a slice, and sums made
// anew for every question. It knows nothing of how a backend works.
type modelLine struct {
	now        time.Time
	claims     []*modelClaim // in order of arrival
	last       int64
	mark       driver.Mark
	writer     string // the id that wrote mark
	tombstones map[string]modelTombstone
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

// advance lets time go by, and takes out those whose lease has ended.
func (l *modelLine) advance(now time.Time) {
	l.now = now
	l.claims = slices.DeleteFunc(l.claims, func(c *modelClaim) bool { return !c.expires.After(now) })
	l.settle()
}

// settle notes who has become granted, with the mark of that moment.
func (l *modelLine) settle() {
	for i, c := range l.claims {
		if !c.admitted && l.granted(i) {
			c.admitted, c.mark = true, l.mark
		}
	}
}

// granted is the rule of the line.
func (l *modelLine) granted(i int) bool { return l.fits(l.claims[i].Claim, l.claims[:i]) }

// fits reports whether c would be granted behind the claims before it.
func (l *modelLine) fits(c driver.Claim, before []*modelClaim) bool {
	sum := c.Weight
	for _, b := range before {
		sum += b.Weight
	}
	return sum <= c.Capacity
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

// otherKind reports whether somebody in line is of another kind than c.
func (l *modelLine) otherKind(c driver.Claim) bool {
	return slices.ContainsFunc(l.claims, func(d *modelClaim) bool {
		return (d.Capacity == driver.RW) != (c.Capacity == driver.RW)
	})
}

// keptOut reports whether id has a tombstone.
func (l *modelLine) keptOut(id string) bool { return l.tombstones[id].until.After(l.now) }

// entomb keeps id out.
func (l *modelLine) entomb(id string, until time.Time) {
	t := l.tombstones[id]
	if until.After(t.until) {
		t.until = until
	}
	l.tombstones[id] = t
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
