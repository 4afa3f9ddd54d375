package drivertest

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// modelLine is the laws of package driver in the fewest words: a slice, and sums made
// anew for every question. It knows nothing of how a backend works.
type modelLine struct {
	now    time.Time
	claims []*modelClaim // in order of arrival
	last   int64
	mark   driver.Mark
	writer *modelClaim // of mark
}

// modelClaim is a claim that was sent at some time, whatever became of it.
type modelClaim struct {
	driver.Claim
	view  *view
	token int64
	left  bool // has left, so that another Enter of it is not part of the laws

	expires   time.Time
	admitted  bool // has been granted
	mark      driver.Mark
	lingering bool

	keptOut time.Time // a tombstone lasts until then
	broken  time.Time // and tells the reason until then, zero if it does not
	reason  string
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
func (l *modelLine) granted(i int) bool { return l.claims[i].fits(l.claims[:i]) }

// fits reports whether c is granted behind the claims before it.
func (c *modelClaim) fits(before []*modelClaim) bool {
	sum := c.Weight
	for _, b := range before {
		sum += b.Weight
	}
	return sum <= c.Capacity
}

// place is where c is in line, and may do what a claim in line may. It is -1 if c lingers.
func (l *modelLine) place(c *modelClaim) int {
	if c.lingering {
		return -1
	}
	return slices.Index(l.claims, c)
}

// otherKind reports whether somebody in line has another capacity than c.
func (l *modelLine) otherKind(c *modelClaim) bool {
	return len(l.claims) > 0 && l.claims[0].Capacity != c.Capacity
}

// remove takes the claim at i out.
func (l *modelLine) remove(i int) {
	l.claims = slices.Delete(l.claims, i, i+1)
	l.settle()
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
