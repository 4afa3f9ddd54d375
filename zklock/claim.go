package zklock

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// claims are the claims that a Backend has entered, or tries to, and the tombstones of
// those that may not enter any more. mu guards all fields of each claim but turn.
type claims struct {
	lapsed func(p position, key string) // called when a lease ended with its claim in line

	mu         sync.Mutex
	byRef      map[driver.ClaimRef]*claim
	tombstones map[driver.ClaimRef]*tombstone
}

// claim is one claim of this Backend.
type claim struct {
	driver.ClaimRef
	of   *claims
	turn chan struct{} // holds a token while an Enter or a Leave of this claim is under way

	joining chan struct{}   // closed when the join under way is answered; nil if there is none
	unsure  *session        // a join in this session was not answered
	at      position        // in line, as far as is known
	left    chan struct{}   // closed when it is not in line any more
	gone    *driver.ErrGone // why it is not

	ttl     time.Duration
	ends    time.Time // when the lease is over, at the latest, for its holder
	timer   *time.Timer
	record  claimRecord
	granted bool      // seen granted; it stays so for as long as it is in line
	tell    time.Time // seen granted then, and the record does not say so yet; zero if it does
	wait    waiting
}

// position is where a claim is in line: its node, in a session.
type position struct {
	session *session
	node    string // a path; empty if the claim is not in line
	czxid   int64  // the transaction that made the node
}

// waiting is what a claim that waits knows of its line.
type waiting struct {
	joined     time.Time
	read       time.Time // when the line was read; zero if it must be read again
	generation int       // of the connection then
	blockers   []string  // the nodes that the claim waits for
	watches    []*watch  // on them, and on its own node once it has waited for a while
	first      member    // of the line
	headTold   string    // the first node that was described to the caller
}

func newClaims(lapsed func(position, string)) *claims {
	return &claims{
		lapsed:     lapsed,
		byRef:      make(map[driver.ClaimRef]*claim),
		tombstones: make(map[driver.ClaimRef]*tombstone),
	}
}

// acquire waits for the turn of a claim, which it makes if there is none.
func (cs *claims) acquire(ctx context.Context, ref driver.ClaimRef, closed <-chan struct{}) (*claim, error) {
	for {
		cs.mu.Lock()
		c := cs.byRef[ref]
		if c == nil {
			c = &claim{ClaimRef: ref, of: cs, turn: make(chan struct{}, 1)}
			cs.byRef[ref] = c
		}
		cs.mu.Unlock()
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-closed:
			return nil, driver.ErrClosed
		}
		cs.mu.Lock()
		current := cs.byRef[ref] == c
		cs.mu.Unlock()
		if current {
			return c, nil
		}
		<-c.turn // forgotten meanwhile
	}
}

// release ends a turn.
func (c *claim) release() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.drop()
	<-c.turn
}

// drop forgets c unless there is something to remember. The caller holds of.mu.
func (c *claim) drop() {
	if c.at.node == "" && c.unsure == nil && c.joining == nil && c.gone == nil && c.of.byRef[c.ClaimRef] == c {
		delete(c.of.byRef, c.ClaimRef)
	}
}

// find returns the claim, or nil, and why it is not in line if that is remembered.
func (cs *claims) find(ref driver.ClaimRef) (*claim, *driver.ErrGone) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byRef[ref]
	if stone := cs.tombstones[ref]; stone != nil {
		gone := stone.gone
		return c, &gone
	}
	if c != nil && c.at.node == "" {
		return c, c.gone
	}
	return c, nil
}

// whyGone is the answer for a claim that is not in line.
func (c *claim) whyGone() error {
	if _, gone := c.of.find(c.ClaimRef); gone != nil {
		return *gone
	}
	return driver.ErrGone{}
}

// position returns where c is in line; ok is false if it is not.
func (c *claim) position() (p position, ok bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.at, c.at.node != ""
}

// joinUnderWay is closed when the join under way is answered; nil if there is none.
func (c *claim) joinUnderWay() chan struct{} {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.joining
}

func (c *claim) beginJoin(done chan struct{}) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.joining = done
}

// unsureIn is the session of a join that was not answered, or nil.
func (c *claim) unsureIn() *session {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.unsure
}

// isGranted reports whether c was seen granted.
func (c *claim) isGranted() bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.granted
}

// leaseLeft is how much is left of the lease.
func (c *claim) leaseLeft() time.Duration {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return max(0, time.Until(c.ends))
}

// unresolved reports whether nobody knows what became of an Enter of c.
func (c *claim) unresolved() bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.gone == nil && (c.joining != nil || c.unsure != nil)
}

// any reports whether a claim of s is in line.
func (cs *claims) any(s *session) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.byRef {
		if c.at.node != "" && c.at.session == s {
			return true
		}
	}
	return false
}

// enter notes that c is in line at p. Its lease begins now. A claim of a session that
// has ended is not in line: endSession has been called, or is about to wait for of.mu.
func (c *claim) enter(p position, record claimRecord, ttl time.Duration) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.joining, c.unsure, c.gone = nil, nil, nil
	if p.session.ended() {
		c.drop()
		return
	}
	c.at, c.record, c.left = p, record, make(chan struct{})
	c.granted, c.tell = false, time.Time{}
	c.wait = waiting{joined: time.Now()}
	c.ends = time.Time{}
	c.extend(ttl)
}

// joinFailed notes the end of a join that put no claim in line, as far as is known:
// unsure is its session if nobody knows.
func (c *claim) joinFailed(unsure *session) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.joining, c.unsure = nil, unsure
	if len(c.turn) == 0 { // its caller has gone
		c.drop()
	}
}

// grant notes that c was seen granted.
func (c *claim) grant() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.granted && !c.record.AtOnce {
		c.tell = time.Now()
	}
	c.granted = true
}

// renewed starts the lease of c again, if it is still in line at node.
func (c *claim) renewed(node string, ttl time.Duration) error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	switch {
	case c.at.node == node:
		c.extend(ttl)
		return nil
	case c.gone != nil:
		return *c.gone
	}
	return goneLease
}

// extend starts the lease of c again. The caller holds of.mu.
func (c *claim) extend(ttl time.Duration) {
	c.ttl = ttl
	if end := time.Now().Add(ttl); end.After(c.ends) {
		c.ends = end
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(c.ends), c.lapse)
	} else {
		c.timer.Reset(time.Until(c.ends))
	}
}

// lapse takes c out of the line when its lease is over: the session, which other claims
// keep alive, would keep it there for ever.
func (c *claim) lapse() {
	c.of.mu.Lock()
	if c.at.node == "" {
		c.of.mu.Unlock()
		return
	}
	if left := time.Until(c.ends); left > 0 {
		c.timer.Reset(left)
		c.of.mu.Unlock()
		return
	}
	p := c.at
	c.vacate(goneLease)
	c.of.mu.Unlock()
	c.of.lapsed(p, c.Key)
}

// vacate notes that c is not in line any more, and why. The caller holds of.mu.
func (c *claim) vacate(gone driver.ErrGone) {
	if c.at.node == "" {
		return
	}
	c.depart()
	c.gone = &gone
	c.forgetLater()
}

// depart notes that c is not in line any more. The caller holds of.mu.
func (c *claim) depart() {
	if c.at.node == "" {
		return
	}
	c.at.node = ""
	c.timer.Stop()
	close(c.left)
}

// forgetLater keeps the reason for those who ask late, and not for ever. The caller
// holds of.mu.
func (c *claim) forgetLater() {
	time.AfterFunc(max(c.ttl, time.Minute), func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		switch {
		case c.of.byRef[c.ClaimRef] != c || c.at.node != "":
		case len(c.turn) > 0 || c.unsure != nil || c.joining != nil:
			c.forgetLater()
		default:
			delete(c.of.byRef, c.ClaimRef)
		}
	})
}

// forget notes that c has left by itself; nobody needs to know why. The caller has the
// turn.
func (c *claim) forget() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.depart()
	c.gone, c.unsure = nil, nil
}

// end notes that the node of c, if it is still its own, is not there any more.
func (c *claim) end(node string, gone driver.ErrGone) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.at.node == node {
		c.vacate(gone)
	}
}

// endSession ends all claims of s.
func (cs *claims) endSession(s *session) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.byRef {
		if c.at.session == s {
			c.vacate(goneSession)
		}
	}
}

// stop stops all timers, and reports whether a claim is in line, or may be.
func (cs *claims) stop() (inLine bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.byRef {
		if c.at.node != "" || c.unsure != nil || c.joining != nil {
			inLine = true
		}
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	return inLine
}
