package drivertest

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// modelLine is the laws of package driver in the fewest words: a slice, and sums made
// anew for every question. It knows nothing of how a backend works.
type modelLine struct {
	now    time.Time
	claims []*modelClaim // in order of arrival
	last   int64
	mark   string
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
	mark      string
	lingering bool
	noticed   bool // expires is when it ends, and then it lingers for its LockDelay

	keptOut time.Time // a tombstone lasts until then
	broken  time.Time // and tells the reason until then, zero if it does not
	reason  string
}

// advance lets time go by, and takes out those whose lease has ended.
func (l *modelLine) advance(now time.Time) {
	l.now = now
	for _, c := range l.claims {
		if c.noticed && !c.lingering && !c.expires.After(now) && c.LockDelay > 0 {
			c.lingering, c.expires = true, c.expires.Add(c.LockDelay)
		}
	}
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

// renew starts the lease of c again, unless it is under notice.
func (l *modelLine) renew(c *modelClaim, ttl time.Duration) {
	if !c.noticed {
		c.expires = driverutil.Later(c.expires, l.now.Add(ttl))
	}
}

// giveNotice has the claim at i end after a time, and linger for delay then.
func (l *modelLine) giveNotice(i int, how driver.Break, delay time.Duration) {
	c := l.claims[i]
	ends := l.now.Add(how.Notice)
	if c.noticed {
		ends, delay = driverutil.Later(ends, c.expires), max(delay, c.LockDelay)
	}
	c.noticed, c.expires, c.LockDelay = true, ends, max(delay, 0)
	c.left, c.reason, c.broken = true, how.Reason, ends.Add(c.LockDelay)
	c.keptOut = driverutil.Later(c.keptOut, c.broken)
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
