package fencelock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/agenda"
	"github.com/fencelock/fencelock/internal/clock"
)

// never is a time that does not come.
const never = clock.Never

// claimState is the state of one claim. A claim goes down this list, except that a Leave that
// failed is due again, and that a claim is ended when its Leave is decided. A claim that ended
// never comes back: its caller makes a new claim with another ID.
type claimState uint8

const (
	stateNew      claimState = iota // the store has not responded to an Enter
	stateWaiting                    // in line
	stateHeld                       // granted
	stateLeaveDue                   // ended here; a Leave is due in the background
	stateLeaving                    // ended here; a background Leave is under way
	stateEnded                      // lost, left, or never in line
)

// othersInLine says whether other processes stand in the line of a claim, as far as is known.
type othersInLine uint8

const (
	othersUnseen  othersInLine = iota // the claim was granted at once
	othersBehind                      // some are in line behind it, or the store did not say
	othersInFront                     // some were in line in front of it
)

// claim is one claim in the store's line. The claim owns its state and its mutex. The lock
// order is localQueues.mu, claim.mu, then any of that of the schedule, that of the events, leaseCtx.mu.
//
// A Client may hold a hundred thousand claims, so the fields that few claims use are in
// rareFields: they are 224 of 556 bytes of BenchmarkHeldLease.
type claim struct {
	c       *Client
	queue   *localQueue // where its goroutines queue; nil if it serves one call only
	key, id string
	wish

	// deadline is when this process stops believing in the lease. It is written under mu,
	// moved back only by the notice of a Break, and read by Lease.Err without a lock.
	deadline atomic.Int64

	entry agenda.Entry // in the schedule, which guards it

	mu      sync.Mutex // guards everything below
	state   claimState
	others  othersInLine
	granted bool // by the store
	// uncertain: an Enter of this ID may still arrive, so Leave must leave a tombstone.
	uncertain bool
	atRisk    bool          // reported by EventAtRisk
	holder    *Lease        // has the grant; nil if no call has it
	token     int64         // the first of its span; 0 before the store has responded
	ttl       time.Duration // as the store grants it; of a claim that waits, as it waits
	sent      int64         // when the last Enter or Renew that succeeded was sent
	leaseEnd  int64         // when the lease has certainly ended in the store
	retryAt   int64         // next renewal, or next background Leave
	failures  int32         // failed renewals or Leaves in a row
	turn
	rare *rareFields

	renewing <-chan struct{} // closed when the scheduled renewal under way has ended; nil without one
}

// wish describes how a claim asks for its key. It never changes.
type wish struct {
	capacity, weight int32
	noRenewal        bool // not renewed by the schedule while it is held
	named            bool // by a ClaimID: other processes may have it, so only its Release makes it leave
}

// turn is the time in which a claim serves goroutines of this process, one after another. Each
// of them gets the next token of the span.
type turn struct {
	span      int32
	used      int32 // tokens given
	usedSoon  int32 // tokens that are used during two Reserves
	turnStart int64 // the first grant, or when the store last said that no other claim is in line
}

// rareFields are those of a claim that waits, fails, or has options.
type rareFields struct {
	owner, note string        // of the call that made the claim
	trace       string        // of Options.Trace for that call
	longestTTL  time.Duration // longest lease that an Enter of the claim may start; 0 if it is ttl
	lockDelay   time.Duration // of the lease in the store, this much at its end is not counted on
	said        lineView
	lost        *lossError  // why the claim ended
	interrupt   func()      // ends the Await under way
	exit        driver.Exit // how the claim leaves, as of exitAt
	exitAt      int64
	notice      *notice // of the Break that ends the claim; nil without one
}

// lineView holds what the last responses of the store said about the line.
type lineView struct {
	mark    string            // what the last holder left on the line
	blocker *driver.BusyError // first claim of the line
	ahead   int
	lastErr error // of the last request before the grant; nil after an answer
}

// noRareFields stands for the fields of a claim without rareFields. It is never written.
var noRareFields rareFields

func (cl *claim) readRare() *rareFields {
	if cl.rare == nil {
		return &noRareFields
	}
	return cl.rare
}

func (cl *claim) writeRare() *rareFields {
	if cl.rare == nil {
		cl.rare = &rareFields{}
	}
	return cl.rare
}

// requestLocked returns the claim as an Enter sends it.
func (cl *claim) requestLocked() (d driver.Claim) {
	rare := cl.readRare()
	d = driver.Claim{
		Key: cl.key, ID: cl.id, Owner: rare.owner, Note: rare.note,
		Trace: rare.trace, LockDelay: rare.lockDelay,
		Capacity: int64(cl.capacity), Weight: int64(cl.weight), TTL: cl.ttl,
		Span: int64(cl.span), Named: cl.named,
	}
	if d.Owner == "" {
		d.Owner = cl.c.options.Owner
	}
	if cl.state == stateNew && rare.longestTTL > cl.ttl {
		d.TTL, d.WaitTTL = rare.longestTTL, cl.ttl
	}
	return d
}

func (cl *claim) ticket() driver.Ticket {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.ticketLocked()
}

func (cl *claim) ticketLocked() driver.Ticket {
	rare := cl.readRare()
	return driver.Ticket{
		Claim: cl.requestLocked(), Token: cl.token, Granted: cl.granted,
		Ahead: rare.said.ahead, Mark: rare.said.mark, Head: rare.said.blocker,
	}
}

// leaveTicketLocked returns the claim as a Leave sends it. A tombstone lasts for its TTL: an Enter that
// arrives afterwards is granted for no longer than it was kept out, except for a named claim,
// whose tombstone is bounded.
func (cl *claim) leaveTicketLocked() (t driver.Ticket) {
	t = cl.ticketLocked()
	t.TTL = max(t.TTL, cl.readRare().longestTTL)
	if cl.named {
		t.TTL = tombstoneTTL(t.TTL)
	}
	return t
}

func (cl *claim) currentState() claimState {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.state
}

// standing reports whether the store has the claim in line, as far as this process can tell, and
// whether the key is taken by it: held here, or waited for in the store's line.
func (cl *claim) standing() (inLine, taken bool) {
	if cl == nil {
		return false, false
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	waits := cl.state == stateWaiting
	return waits || cl.state == stateHeld, waits || cl.holder != nil
}

// lastAnswer returns the first claim of the line in the last response, or nil, and the error of the last
// request since then.
func (cl *claim) lastAnswer() (blocker *driver.BusyError, err error) {
	if cl == nil {
		return nil, nil
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	said := &cl.readRare().said
	return said.blocker, said.lastErr
}

// describeTo fills in who holds the claim here, or else who was first in line in front of it.
func (cl *claim) describeTo(h *HeldError) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	c := cl.c
	if l := cl.holder; l != nil {
		h.Owner, h.Token, h.Since, h.Trace = c.options.Owner, l.token, c.clock.Wall(l.at), l.terms.trace
		h.Left = time.Duration(cl.deadline.Load() - c.clock.Now())
	} else if said := &cl.readRare().said; said.blocker != nil {
		h.describe(said.blocker)
		h.Ahead += said.ahead
	}
}

func (cl *claim) endAtLocked() int64 {
	if cl.holder == nil {
		return never
	}
	return cl.holder.terms.maxHold
}

// believed returns how long a lease of length d is believed, counted from the sending of
// the request that started it. The margin of a hundredth is for clocks of different rates,
// two milliseconds are for a thread that is descheduled.
func believed(d time.Duration) int64 { return int64(d - d/100 - 2*time.Millisecond) }

func (cl *claim) countedLocked(d time.Duration) time.Duration { return d - cl.readRare().lockDelay }

// confirmLeaseLocked notes a lease of length left that the store confirmed. It never moves
// the deadline back, nor beyond the end of a notice. It reports false if the response came after that lease had ended.
func (cl *claim) confirmLeaseLocked(sent, now int64, left time.Duration) bool {
	counted := cl.countedLocked(left)
	deadline := min(sent+believed(counted), cl.noticeEndLocked())
	if now >= deadline {
		return false
	}
	later := deadline > cl.deadline.Load()
	if later {
		cl.deadline.Store(deadline)
		cl.sent = sent
	}
	if later || sent >= cl.retryAt { // a notice may keep the deadline as it is
		cl.retryAt = sent + int64(renewEvery(counted))
	}
	cl.leaseEnd = max(cl.leaseEnd, now+int64(left))
	cl.failures = 0
	return true
}

// joinLocked notes the store's response to an Enter: the claim is in line.
func (cl *claim) joinLocked(d *driver.Claim, t *driver.Ticket, now int64) {
	cl.ttl = d.TTL
	if t.TTL > 0 {
		cl.ttl = t.TTL
	}
	cl.token, cl.granted = t.Token, t.Granted
	if cl.rare != nil || t.Mark != "" || t.Head != nil || t.Ahead != 0 {
		cl.writeRare().said = lineView{mark: t.Mark, blocker: t.Head, ahead: t.Ahead}
	}
	cl.state = stateWaiting
	if t.Granted {
		cl.state, cl.atRisk = stateHeld, false
	} else {
		cl.others = othersInFront
	}
	cl.planLocked(now)
}

// Entry returns the place of the claim in the schedule.
func (cl *claim) Entry() *agenda.Entry { return &cl.entry }

// planLocked schedules the claim for what is due first: its end, its risk, its stall, its renewal or its Leave.
func (cl *claim) planLocked(now int64) {
	s := &cl.c.schedule
	switch cl.state {
	case stateWaiting, stateHeld:
		at, slack := min(cl.deadline.Load(), cl.endAtLocked()), int64(0)
		if !cl.atRisk {
			at = min(at, cl.riskAtLocked())
		}
		if p := cl.progressLocked(); !p.Stalled() {
			at = min(at, p.At())
		}
		if cl.renewsLocked() && cl.retryAt <= at {
			at = cl.retryAt
			if cl.failures == 0 {
				slack = int64(cl.ttl) / 12
			}
		}
		s.Put(cl, at, slack, now)
	case stateLeaveDue:
		s.Put(cl, cl.retryAt, 0, now)
	case stateLeaving:
		s.Put(cl, never, 0, now) // Close finds it
	default:
		s.Drop(cl)
	}
}

// process handles the claim if it is due at time now. A renewal that is due joins r, or is put off
// if r is nil.
func (cl *claim) process(now, slack int64, r renewals) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case cl.state == stateLeaveDue:
		if now >= cl.retryAt {
			cl.sendLeaveLocked(now)
			return
		}
	case cl.state != stateWaiting && cl.state != stateHeld, cl.lapseLocked(now):
	default:
		cl.checkStallLocked(now)
		if !cl.atRisk && now >= cl.riskAtLocked() {
			cl.riskLocked(now, nil)
		}
		switch due := cl.renewsLocked() && now+slack >= cl.retryAt; {
		case due && r == nil:
			cl.retryAt = now + int64(cl.ttl)/60
		case due:
			cl.renewing = r.add(cl, cl.ttl, cl.countedLocked(cl.ttl))
		}
	}
	cl.planLocked(now)
}

func (cl *claim) renewsLocked() bool {
	return cl.renewing == nil && !(cl.noRenewal && cl.state == stateHeld) && !cl.progressLocked().Stalled()
}

// riskAtLocked returns when two thirds of the lease have passed. A lease that its notice ends is
// not at risk.
func (cl *claim) riskAtLocked() int64 {
	if cl.deadline.Load() >= cl.noticeEndLocked() {
		return never
	}
	return cl.sent + 2*(cl.deadline.Load()-cl.sent)/3
}
