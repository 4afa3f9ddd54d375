package memlock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

// crowded is the length from which on a line finds its claims by a map. Below,
// going through them is faster.
const crowded = 8

// exactAhead is how far a waiting claim counts the claims before it, one by one.
const exactAhead = 1024

// line is one key's claims in order of arrival, and what outlives them.
type line struct {
	key    string
	index  int   // in Store.order
	last   int64 // the largest token drawn
	marked *marked

	head, tail *claim
	n          int   // claims in line
	sum        int64 // Σ weight of all of them
	arrivals   int64 // claims that have ever joined

	// waiting is the first claim that is not granted, and held is Σ weight of
	// those before it. If all claims have one capacity, nobody behind waiting is
	// granted either.
	waiting *claim
	held    int64

	sizes   []size            // the capacities in use
	soonest time.Duration     // no claim expires before
	ids     map[string]*claim // nil until the line is crowded
}

// marked is a mark and the claim that wrote it.
type marked struct {
	mark driver.Mark
	id   string
}

// size counts the claims of one capacity.
type size struct {
	capacity int64
	n        int
}

// claim is one place in a line.
type claim struct {
	driver.Claim
	token      int64
	arrival    int64 // rises along the line
	expires    time.Duration
	since      time.Time // granted since, or waiting since
	mark       driver.Mark
	granted    bool
	lingering  bool
	wake       chan struct{} // closed when granted or gone; nil if nobody waits for that
	prev, next *claim
}

// rouse wakes whoever waits for c.
func (c *claim) rouse() {
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
}

// join puts a new claim behind all others and draws its token, unless that is the
// ballot, which has been judged.
func (l *line) join(d driver.Claim, now instant) *claim {
	l.arrivals++
	c := &claim{
		Claim:   d,
		token:   max(l.last+1, now.wall.UnixMicro()),
		arrival: l.arrivals,
		expires: now.mono + d.TTL,
		since:   now.wall,
		prev:    l.tail,
	}
	if c.Ballot != 0 {
		c.token = c.Ballot
	}
	l.last = max(l.last, c.token+c.Span-1)
	if l.tail == nil {
		l.head = c
		l.soonest = c.expires
	} else {
		l.tail.next = c
		l.soonest = min(l.soonest, c.expires)
	}
	l.tail = c
	l.n++
	l.sum += c.Weight
	l.count(c.Capacity, 1)
	l.register(c)
	switch {
	case l.sum <= c.Capacity:
		l.admit(c, now)
		if l.waiting == nil {
			l.held = l.sum
		}
	case l.waiting == nil:
		l.waiting = c
	}
	return c
}

// register keeps the map of a crowded line.
func (l *line) register(c *claim) {
	if l.ids != nil {
		l.ids[c.ID] = c
		return
	}
	if l.n <= crowded {
		return
	}
	l.ids = make(map[string]*claim, 2*l.n)
	for c := l.head; c != nil; c = c.next {
		l.ids[c.ID] = c
	}
}

// find returns the claim with id, or nil.
func (l *line) find(id string) *claim {
	if l.ids != nil {
		return l.ids[id]
	}
	for c := l.head; c != nil; c = c.next {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// remove takes c out. The caller calls grant when it has removed what it wants.
func (l *line) remove(c *claim) {
	if c.prev == nil {
		l.head = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	switch {
	case l.waiting == nil || c.arrival < l.waiting.arrival:
		l.held -= c.Weight
	case l.waiting == c:
		l.waiting = c.next
	}
	l.n--
	l.sum -= c.Weight
	l.count(c.Capacity, -1)
	if l.ids != nil {
		delete(l.ids, c.ID)
		if l.n == 0 {
			l.ids = nil
		}
	}
	c.rouse()
}

// grant admits everyone that now fits: a writer that leaves may let in many
// readers, so stopping at the first would leave the others asleep beside a lock
// that is theirs. It costs one step per admitted claim, or one per claim if
// capacities differ: then a later claim may fit where an earlier one does not.
func (l *line) grant(now instant) {
	var first *claim
	before := l.held
	for c := l.waiting; c != nil; c = c.next {
		switch {
		case c.granted:
		case before+c.Weight <= c.Capacity:
			l.admit(c, now)
		case first == nil:
			first = c
			l.held = before
		}
		if first != nil && !l.mixed() {
			break
		}
		before += c.Weight
	}
	if first == nil {
		l.held = l.sum
	}
	l.waiting = first
}

// admit grants c.
func (l *line) admit(c *claim, now instant) {
	c.granted = true
	c.since = now.wall
	if l.marked != nil {
		c.mark = l.marked.mark
	}
	c.rouse()
}

// purge removes what has expired. It looks at nobody while no claim can have
// expired, and at everybody otherwise.
func (l *line) purge(now instant) {
	if l.head == nil || now.mono < l.soonest {
		return
	}
	l.soonest = now.mono + maxTTL
	for c := l.head; c != nil; c = c.next {
		if c.expires <= now.mono {
			l.remove(c)
			continue
		}
		l.soonest = min(l.soonest, c.expires)
	}
	l.grant(now)
}

// renew starts the lease of c again. It never shortens it: a Renew with a short
// TTL that arrives late must not cut what a longer one has promised.
func (l *line) renew(c *claim, ttl time.Duration, now instant) {
	c.TTL = clampTTL(ttl)
	c.expires = max(c.expires, now.mono+c.TTL)
}

// linger lets c count on until the given instant, whoever renews it.
func (l *line) linger(c *claim, until time.Duration) {
	c.lingering = true
	c.expires = until
	l.soonest = min(l.soonest, until)
	c.rouse()
	if l.waiting != nil {
		// It sleeps until the lease would have ended. Whoever purges wakes the rest.
		l.waiting.rouse()
	}
}

// count keeps sizes.
func (l *line) count(capacity int64, by int) {
	for i := range l.sizes {
		if l.sizes[i].capacity != capacity {
			continue
		}
		l.sizes[i].n += by
		if l.sizes[i].n == 0 {
			last := len(l.sizes) - 1
			l.sizes[i] = l.sizes[last]
			l.sizes = l.sizes[:last]
		}
		return
	}
	l.sizes = append(l.sizes, size{capacity, by})
}

// mixed reports whether claims of different capacities are in line.
func (l *line) mixed() bool { return len(l.sizes) > 1 }

// ticket says where c stands.
func (l *line) ticket(c *claim, now instant) driver.Ticket {
	t := driver.Ticket{
		Claim:   c.Claim,
		Token:   c.token,
		Granted: c.granted,
		Left:    c.expires - now.mono,
		Mixed:   l.mixed(),
	}
	if c.granted {
		t.Mark = c.mark
		return t
	}
	t.Ahead = l.ahead(c)
	t.Head = l.busy(t.Ahead, now)
	return t
}

// ahead counts the claims before c, exactly up to exactAhead and from arrivals
// beyond: those who left from the middle are counted then.
func (l *line) ahead(c *claim) int {
	if c == l.tail {
		return l.n - 1
	}
	n := 0
	for b := c.prev; b != nil; b = b.prev {
		if n++; n == exactAhead {
			return min(l.n-1, n+int(b.arrival-l.head.arrival))
		}
	}
	return n
}

// busy describes the first claim of the line to one with that many ahead.
func (l *line) busy(ahead int, now instant) *driver.BusyError {
	h := l.head
	return &driver.BusyError{
		Owner: h.Owner,
		Note:  h.Note,
		Token: h.token,
		Since: h.since,
		Left:  h.expires - now.mono,
		Ahead: ahead,
	}
}
