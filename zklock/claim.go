package zklock

import (
	"cmp"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// claims are those that a Backend has entered, or tries to, and those that it remembers.
type claims struct {
	b     *Backend
	mu    sync.Mutex
	byRef map[driverutil.ClaimRef]*claim
}

// claim is one claim of this Backend.
type claim struct {
	driverutil.ClaimRef
	of   *claims
	turn sync.Mutex    // held by Enter and Leave
	wake chan struct{} // holds a token when the line must be read again
	claimState
}

// claimState is what is known of a claim. It is guarded by claims.mu.
type claimState struct {
	users   int               // calls that have the turn or wait for it
	unsure  *session          // a join in this session was not answered, or not yet
	barrier string            // that this join carries
	at      position          // in line, as far as is known
	gone    *driver.GoneError // why it is not in line
	barred  bool              // it has a tombstone

	ttl   time.Duration
	ends  time.Time   // of the lease and, out of line, of what is remembered
	timer *time.Timer // calls lapse then

	version int32             // of its node, when it was read last
	notice  *driver.GoneError // if it is under notice until ends

	record     claimRecord
	granted    bool      // seen granted; it stays so for as long as it is in line
	unrecorded time.Time // seen granted then, and its node does not say so; zero if it does
	read       time.Time // when the line was read; zero if it must be read again
	pzxid      int64     // the transaction that last changed the line then
	blocker    string    // the node that it waited for then; "" if any of them may let it in
	watches    watches   // set since then
}

// position is where a claim is in line: its node, in a session.
type position struct {
	session *session
	node    string // a path; empty if the claim is not in line
	czxid   int64  // the transaction that made the node
}

// memory is for how long it is remembered why a claim is not in line, at least.
const memory = time.Minute

// acquire waits for the turn of a claim, which it makes if there is none.
func (cs *claims) acquire(ref driverutil.ClaimRef) *claim {
	cs.mu.Lock()
	c := cs.byRef[ref]
	if c == nil {
		c = &claim{ClaimRef: ref, of: cs, wake: make(chan struct{}, 1)}
		c.timer = time.AfterFunc(memory, c.lapse)
		cs.byRef[ref] = c
	}
	c.users++
	cs.mu.Unlock()
	c.turn.Lock()
	return c
}

// release ends a turn.
func (c *claim) release() {
	c.turn.Unlock()
	c.update(func() { c.users-- })
}

// find returns a claim; nil if nothing is known of it.
func (cs *claims) find(ref driverutil.ClaimRef) *claim {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.byRef[ref]
}

// state returns a copy of what is known of c, which may be nil.
func (c *claim) state() (st claimState) {
	if c != nil {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		st = c.claimState
	}
	return st
}

// update changes the state of c, and drops c if nothing is left to remember.
func (c *claim) update(change func()) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	change()
	idle := c.users == 0 && c.gone == nil && !c.barred && !c.maybeInLine()
	if idle && c.of.byRef[c.ClaimRef] == c {
		c.timer.Stop()
		delete(c.of.byRef, c.ClaimRef)
	}
}

// maybeInLine reports whether the claim is in line, or may be.
func (st *claimState) maybeInLine() bool {
	return st.at.node != "" || st.unsure != nil
}

// whyNotIn says why the claim is not in line in session s, or returns nil.
func (st *claimState) whyNotIn(s *session) error {
	switch {
	case st.gone != nil:
		return *st.gone
	case st.at.node == "" && st.maybeInLine():
		return errUnresolved
	case st.at.node == "":
		return driver.GoneError{}
	case st.at.session != s:
		return goneSession
	}
	return nil
}

// entered notes that c is in line at p. Its lease begins now.
func (c *claim) entered(p position, record claimRecord, ttl time.Duration) {
	c.update(func() {
		c.unsure, c.gone = nil, nil
		if p.session.isOver() {
			return // disconnected has been called, or is about to wait for claims.mu
		}
		c.at, c.record, c.granted = p, record, false
		c.ends, c.unrecorded = time.Time{}, time.Time{}
		c.version, c.notice = 0, nil
		c.readAgain()
		c.ttl = ttl
		c.endAfter(ttl)
	})
}

// isGranted notes that c was seen granted.
func (c *claim) isGranted() {
	c.update(func() {
		if !c.granted && !c.record.AtOnce {
			c.unrecorded = time.Now()
		}
		c.granted = true
	})
}

// isBlocked notes what c waits for, as of now. A watch on that stays.
func (c *claim) isBlocked(blocker string, pzxid int64) {
	c.update(func() {
		if c.blocker != blocker || blocker == "" && c.pzxid != pzxid {
			c.watches = watches{}
		}
		c.read, c.blocker, c.pzxid = time.Now(), blocker, pzxid
	})
}

// readAgain has the line read again before anything is waited for. claims.mu is held.
func (st *claimState) readAgain() { st.read, st.watches = time.Time{}, watches{} }

func (c *claim) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// renewed starts the lease of c again, if it is still in line at node.
func (c *claim) renewed(node string, ttl time.Duration) (err error) {
	c.update(func() {
		if c.at.node != node {
			err = c.whyNotIn(nil)
			return
		}
		if c.notice != nil {
			err = c.noticed()
			return
		}
		c.ttl = ttl
		c.endAfter(ttl)
	})
	return err
}

// endAfter has lapse called when d has passed, unless that is called later anyhow.
// claims.mu is held.
func (c *claim) endAfter(d time.Duration) {
	if end := time.Now().Add(d); end.After(c.ends) {
		c.ends = end
		c.timer.Reset(d)
	}
}

// lapse takes c out of the line when its lease is over: the session, which other claims
// keep alive, would keep it there forever. Out of line, c is forgotten.
func (c *claim) lapse() {
	var p position
	c.update(func() {
		switch {
		case time.Until(c.ends) > 0: // the timer is set again
		case c.at.node != "":
			p = c.at
			if c.notice == nil {
				c.vacate(goneLease)
				return
			}
			c.barred = true
			c.vacate(*c.notice)
		default:
			c.gone, c.barred = nil, false
		}
	})
	if p.node != "" {
		c.of.b.finishLeave(c.Key, p)
	}
}

// vacate notes that c is not in line any more, and remembers why. claims.mu is held.
func (c *claim) vacate(gone driver.GoneError) {
	if c.at.node == "" {
		return
	}
	c.at.node, c.gone = "", &gone
	c.endAfter(max(c.ttl, memory))
	c.wakeUp()
}

// end notes that the node of c, if it is still its own, is not there any more.
func (c *claim) end(node string, gone driver.GoneError) {
	c.update(func() {
		if c.at.node == node {
			c.vacate(gone)
		}
	})
}

// left notes that its own Leave took c out of the line. Only a tombstone keeps the reason.
func (c *claim) left() {
	c.update(func() {
		c.unsure = nil
		why := goneLeft
		if c.notice != nil {
			why, c.barred = *c.notice, true
		}
		c.vacate(why)
		if !c.barred {
			c.gone = nil
		}
	})
}

// bar keeps c from entering for d, and remembers why if c is not in line. What an operator
// said is kept over what others say. A tombstone in memory is enough: only this Backend can
// have sent an Enter of the ID.
func (c *claim) bar(gone driver.GoneError, d time.Duration) {
	c.update(func() {
		c.barred = true
		if c.at.node != "" {
			c.ttl = max(c.ttl, d) // vacate remembers c for that long
			return
		}
		if c.gone == nil || gone.Broken {
			c.gone = &gone
		}
		c.endAfter(d)
	})
}

// tombstone says why c may not enter, or returns nil.
func (c *claim) tombstone() error {
	if st := c.state(); st.barred {
		return *cmp.Or(st.gone, &goneLeft)
	}
	return nil
}

// disconnected has the lines of all claims of s read again, for their watches may be lost.
// If s is over, it ends them.
func (cs *claims) disconnected(s *session) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.byRef {
		if c.at.session != s {
			continue
		}
		if s.isOver() {
			c.vacate(goneSession)
		}
		c.wakeUp()
	}
}

// among returns the claims of s whose nodes were made by one of these transactions.
func (cs *claims) among(s *session, czxids map[int64]bool) (found []*claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.byRef {
		if c.at.session == s && c.at.node != "" && czxids[c.at.czxid] {
			found = append(found, c)
		}
	}
	return found
}

// anyInLine reports whether a claim is in line, or may be.
func (cs *claims) anyInLine() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.byRef {
		if c.maybeInLine() {
			return true
		}
	}
	return false
}
