// Package line is the rule of package driver in Go: the line of one key as a value, and the
// steps that change it.
//
//	granted(c)  ⇔  weight(c) + Σ weight(b) for every live b before c  ≤  capacity(c)
//
// Enter and Grant apply the rule. Nothing else grants a claim.
//
// A step does no I/O and has no clock: it takes a line and a time, changes the line, and says
// whom that concerns. Who runs it makes it atomic: package memlock by a mutex, package
// swaplock by writing the line only if nobody has written it since it was read. Each step
// begins with Purge.
//
// Joining takes constant time. Leaving a line of 10 000 claims takes microseconds: the
// pointers behind the claim move up.
package line

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// The limits of a TTL and of a linger.
const (
	MinTTL = time.Millisecond
	MaxTTL = 366 * 24 * time.Hour
)

// Line is the line of one key, and what it remembers when it is empty. The zero value is the
// line of a key that was never used.
type Line struct {
	Claims     []*Claim // in order of arrival, so their tokens rise
	Last       int64    // the largest token drawn
	Mark       string
	MarkedBy   string               // the ID of the claim that wrote Mark
	Tombstones map[string]Tombstone // by the IDs of claims

	byID       map[string]*Claim // nil while the line is short
	total      int64             // Σ weight of all claims
	nextExpiry time.Duration     // no claim expires earlier
	sweepAt    int               // the number of tombstones at which the next one sweeps
}

// Claim is one place in a line.
type Claim struct {
	driver.Claim
	Token     int64
	Expires   time.Duration // see Step.Mono
	Since     time.Time     // granted since, or waiting since
	Mark      string        // the mark of the line when the claim was granted
	Granted   bool
	Lingering bool   // its holder has left, and the place stays taken until Expires
	Noticed   bool   // it ends at Expires, whatever renews it, and then lingers for its LockDelay
	Node      string // what its process is called by those who tell it of news
}

// Step is one step: when it happens, and whom it concerns. A step that runs again begins
// with a new one.
type Step struct {
	Wall  time.Time     // what tokens and people go by
	Mono  time.Duration // what leases end by: the time since a zero that the store keeps
	Grace time.Duration // by how much Mono may be ahead of that
	News  []News
}

// News is of a claim whose owner may be waiting: it holds the lock now, or it is gone, lingers, ends sooner than it
// did, or is the first to wait where a claim before it ends sooner.
type News struct {
	Claim   *Claim
	Granted bool
}

func (s *Step) tell(c *Claim, granted bool) { s.News = append(s.News, News{c, granted}) }

// Restore takes over the claims of a line that was read from a store. Their tokens rise.
func (l *Line) Restore(claims []*Claim) {
	l.Claims, l.byID, l.total, l.nextExpiry = claims, nil, 0, MaxTTL
	for i, c := range claims {
		l.total += c.Weight
		if i == 0 || c.Expires < l.nextExpiry {
			l.nextExpiry = c.Expires
		}
	}
}

// join puts a new claim behind all others and draws its token.
func (l *Line) join(s *Step, d driver.Claim) *Claim {
	c := &Claim{
		Claim: d,
		Token: max(l.Last+1, after(s, &d)),
		Since: s.Wall,
	}
	fits := l.total+c.Weight <= c.Capacity
	c.TTL, c.WaitTTL = driverutil.Lease(&d, fits), 0
	c.Expires = s.Mono + c.TTL
	l.Last = max(l.Last, c.Token+c.Span-1)
	if len(l.Claims) == 0 || c.Expires < l.nextExpiry {
		l.nextExpiry = c.Expires
	}
	l.Claims = append(l.Claims, c)
	l.index(c)
	l.total += c.Weight
	if fits {
		l.admit(s, c)
	}
	return c
}

// after is the lowest token that d may draw, whatever its line has drawn.
func after(s *Step, d *driver.Claim) int64 {
	if d.After > 0 {
		return d.After + 1
	}
	return s.Wall.UnixMicro()
}

// Grant admits every claim that fits. One writer that leaves may let in many
// readers: stopping after the first would leave the others asleep.
func (l *Line) Grant(s *Step) {
	sum := int64(0)
	for _, c := range l.Claims {
		if sum += c.Weight; sum > c.Capacity {
			return // all have one capacity, so nobody behind c fits either
		}
		if !c.Granted {
			l.admit(s, c)
			s.tell(c, true)
		}
	}
}

// admit grants c.
func (l *Line) admit(s *Step, c *Claim) {
	c.Granted, c.Since, c.Mark = true, s.Wall, l.Mark
}

// remove takes c out, and admits who then fits.
func (l *Line) remove(s *Step, c *Claim) {
	i := l.Ahead(c)
	l.Claims = slices.Delete(l.Claims, i, i+1)
	l.forget(s, c)
	l.Grant(s)
}

// forget accounts for a claim that was taken out of Claims.
func (l *Line) forget(s *Step, c *Claim) {
	l.total -= c.Weight
	delete(l.byID, c.ID)
	s.tell(c, false)
}

// Purge removes what has expired, and admits who then fits.
func (l *Line) Purge(s *Step) {
	if len(l.Claims) == 0 || s.Mono < l.nextExpiry {
		return
	}
	l.endNotices(s)
	l.nextExpiry = s.Mono + MaxTTL
	l.Claims = slices.DeleteFunc(l.Claims, func(c *Claim) bool {
		if c.Expires <= s.Mono {
			l.forget(s, c)
			return true
		}
		l.nextExpiry = min(l.nextExpiry, c.Expires)
		return false
	})
	l.Grant(s)
}

// endNotices has the claims linger whose notice is over.
func (l *Line) endNotices(s *Step) {
	for _, c := range l.Claims {
		if c.Noticed && !c.Lingering && c.Expires <= s.Mono && c.LockDelay > 0 {
			l.linger(s, c, c.Expires+c.LockDelay)
		}
	}
}

// Full reports whether a claim that joins must wait.
func (l *Line) Full() bool { return len(l.Claims) > 0 && l.total >= l.Claims[0].Capacity }

// NextExpiry is a time before which no claim expires.
func (l *Line) NextExpiry() time.Duration { return l.nextExpiry }

// renew starts the lease of c again and never shortens it: a late Renew with a
// short TTL must not cut what a longer one has promised.
func (c *Claim) renew(s *Step, ttl time.Duration) {
	if c.Noticed {
		return
	}
	c.TTL = clampTTL(ttl)
	c.Expires = max(c.Expires, s.Mono+c.TTL)
}

// linger keeps the place of c taken until then. The first who waits would otherwise sleep
// until the end of the old lease.
func (l *Line) linger(s *Step, c *Claim, until time.Duration) {
	c.Lingering, c.Expires = true, until
	s.tell(c, false)
	l.endsSooner(s, c)
}

// endsSooner tells the first who waits that c may end sooner than it did.
func (l *Line) endsSooner(s *Step, c *Claim) {
	l.nextExpiry = min(l.nextExpiry, c.Expires)
	if i := slices.IndexFunc(l.Claims, func(w *Claim) bool { return !w.Granted }); i >= 0 {
		s.tell(l.Claims[i], false)
	}
}

func clampTTL(d time.Duration) time.Duration { return min(max(d, MinTTL), MaxTTL) }

// longLine is the length from which on a line finds its claims by a map. In a
// shorter line, a scan is faster.
const longLine = 8

// index adds c to the map of a long line.
func (l *Line) index(c *Claim) {
	if l.byID != nil {
		l.byID[c.ID] = c
		return
	}
	if len(l.Claims) <= longLine {
		return
	}
	l.byID = make(map[string]*Claim, 2*len(l.Claims))
	for _, c := range l.Claims {
		l.byID[c.ID] = c
	}
}

// rename gives c the ID of by and what by carries.
func (l *Line) rename(c *Claim, by *driver.Claim) {
	old := c.ID
	delay := by.LockDelay
	if c.Noticed {
		delay = max(delay, c.LockDelay) // which was promised
	}
	c.ID, c.Owner, c.Note, c.Trace, c.LockDelay = by.ID, by.Owner, by.Note, by.Trace, delay
	if l.byID != nil {
		delete(l.byID, old)
		l.byID[c.ID] = c
	}
}

// find returns the claim with id, or nil.
func (l *Line) find(id string) *Claim {
	if l.byID != nil {
		return l.byID[id]
	}
	for _, c := range l.Claims {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// Find returns the claim with id, or nil if it is not in line or has left.
func (l *Line) Find(id string) *Claim {
	if c := l.find(id); c != nil && !c.Lingering {
		return c
	}
	return nil
}

// Ahead counts the claims before c. Tokens rise along the claims.
func (l *Line) Ahead(c *Claim) int {
	byToken := func(b *Claim, token int64) int { return cmp.Compare(b.Token, token) }
	i, _ := slices.BinarySearchFunc(l.Claims, c.Token, byToken)
	return i
}
