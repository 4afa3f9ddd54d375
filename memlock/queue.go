package memlock

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// queue is the line of one key, and what the line remembers when it is empty. It
// is the rule of package driver in Go:
//
//	granted(c)  ⇔  weight(c) + Σ weight(b) for every live b before c  ≤  capacity(c)
//
// join and grant apply the rule. Nothing else grants a claim.
//
// Joining takes constant time. Leaving a line of 10 000 claims takes microseconds:
// the pointers behind the claim move up.
type queue struct {
	claims     []*claim          // in order of arrival, so their tokens rise
	byID       map[string]*claim // nil while the line is short
	total      int64             // Σ weight of all claims
	nextExpiry time.Duration     // no claim expires earlier

	lastToken int64       // the largest token drawn
	mark      driver.Mark // what the last finished holder left
	markedBy  string      // the ID of the claim that wrote mark
}

// claim is one place in a line.
type claim struct {
	driver.Claim
	token     int64
	expires   time.Duration
	since     time.Time   // granted since, or waiting since
	mark      driver.Mark // the mark of the line when the claim was granted
	granted   bool
	lingering bool          // its holder left, and the place stays taken until expires
	wake      chan struct{} // closed when granted or gone; nil if nobody waits
}

// wakeWaiter ends the Awaits of c.
func (c *claim) wakeWaiter() {
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
}

// join puts a new claim behind all others and draws its token.
func (q *queue) join(d driver.Claim, now instant) *claim {
	c := &claim{
		Claim: d,
		token: max(q.lastToken+1, now.wall.UnixMicro()),
		since: now.wall,
	}
	fits := q.total+c.Weight <= c.Capacity
	c.TTL, c.WaitTTL = d.Lease(fits), 0
	c.expires = now.mono + c.TTL
	q.lastToken = max(q.lastToken, c.token+c.Span-1)
	if len(q.claims) == 0 || c.expires < q.nextExpiry {
		q.nextExpiry = c.expires
	}
	q.claims = append(q.claims, c)
	q.index(c)
	q.total += c.Weight
	if fits {
		q.admit(c, now)
	}
	return c
}

// grant admits every claim that fits. One writer that leaves may let in many
// readers: stopping after the first would leave the others asleep.
func (q *queue) grant(now instant) {
	sum := int64(0)
	for _, c := range q.claims {
		if sum += c.Weight; sum > c.Capacity {
			return // all have one capacity, so nobody behind c fits either
		}
		if !c.granted {
			q.admit(c, now)
		}
	}
}

// admit grants c.
func (q *queue) admit(c *claim, now instant) {
	c.granted, c.since, c.mark = true, now.wall, q.mark
	c.wakeWaiter()
}

// remove takes c out. The caller then calls grant.
func (q *queue) remove(c *claim) {
	i := q.ahead(c)
	q.claims = slices.Delete(q.claims, i, i+1)
	q.forget(c)
}

// forget accounts for a claim that was taken out of claims.
func (q *queue) forget(c *claim) {
	q.total -= c.Weight
	delete(q.byID, c.ID)
	c.wakeWaiter()
}

// purge removes what has expired, and admits who then fits.
func (q *queue) purge(now instant) {
	if len(q.claims) == 0 || now.mono < q.nextExpiry {
		return
	}
	q.nextExpiry = now.mono + maxTTL
	q.claims = slices.DeleteFunc(q.claims, func(c *claim) bool {
		if c.expires <= now.mono {
			q.forget(c)
			return true
		}
		q.nextExpiry = min(q.nextExpiry, c.expires)
		return false
	})
	q.grant(now)
}

// renew starts the lease of c again and never shortens it: a late Renew with a
// short TTL must not cut what a longer one has promised.
func (q *queue) renew(c *claim, ttl time.Duration, now instant) {
	c.TTL = clampTTL(ttl)
	c.expires = max(c.expires, now.mono+c.TTL)
}

// linger keeps the place of c taken until the given instant. It wakes the first
// waiter, which would otherwise sleep until the end of the old lease.
func (q *queue) linger(c *claim, until time.Duration) {
	c.lingering, c.expires = true, until
	q.nextExpiry = min(q.nextExpiry, until)
	c.wakeWaiter()
	if i := slices.IndexFunc(q.claims, func(w *claim) bool { return !w.granted }); i >= 0 {
		q.claims[i].wakeWaiter()
	}
}

// longLine is the length from which on a line finds its claims by a map. In a
// shorter line, a scan is faster.
const longLine = 8

// index adds c to the map of a long line.
func (q *queue) index(c *claim) {
	if q.byID != nil {
		q.byID[c.ID] = c
		return
	}
	if len(q.claims) <= longLine {
		return
	}
	q.byID = make(map[string]*claim, 2*len(q.claims))
	for _, c := range q.claims {
		q.byID[c.ID] = c
	}
}

// rename gives c the ID, the owner and the note of by.
func (q *queue) rename(c *claim, by *driver.Claim) {
	old := c.ID
	c.ID, c.Owner, c.Note = by.ID, by.Owner, by.Note
	if q.byID != nil {
		delete(q.byID, old)
		q.byID[c.ID] = c
	}
}

// find returns the claim with id, or nil.
func (q *queue) find(id string) *claim {
	if q.byID != nil {
		return q.byID[id]
	}
	for _, c := range q.claims {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// findLive returns the claim with id, or nil if it has left.
func (q *queue) findLive(id string) *claim {
	if c := q.find(id); c != nil && !c.lingering {
		return c
	}
	return nil
}

// ahead counts the claims before c. Tokens rise along the claims.
func (q *queue) ahead(c *claim) int {
	byToken := func(b *claim, token int64) int { return cmp.Compare(b.token, token) }
	i, _ := slices.BinarySearchFunc(q.claims, c.token, byToken)
	return i
}

// ticket describes where c stands.
func (q *queue) ticket(c *claim, now instant) driver.Ticket {
	t := driver.Ticket{
		Claim:   c.Claim,
		Token:   c.token,
		Granted: c.granted,
		Left:    c.expires - now.mono,
	}
	if c.granted {
		t.Mark = c.mark
		return t
	}
	t.Ahead = q.ahead(c)
	t.Head = q.busy(t.Ahead, now)
	return t
}

// busy describes the first claim to one that has so many ahead.
func (q *queue) busy(ahead int, now instant) *driver.BusyError {
	first := q.claims[0]
	return &driver.BusyError{
		Owner: first.Owner,
		Note:  first.Note,
		Token: first.token,
		Since: first.since,
		Left:  first.expires - now.mono,
		Ahead: ahead,
	}
}
