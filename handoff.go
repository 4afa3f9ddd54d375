package fencelock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

// A claim serves the goroutines of its local queue one after another, each with the next
// token of its span. Its turn is over when the span is used up or one lease has passed.
// Where the backend is a driver.Reserver and no other process is in line, the store is asked
// for more tokens before that, and the claim gets a new turn.
//
// So other processes wait for at most 2×HandOff grants, or, where grants are quicker than
// the store, for those made during four answers of the store, at most 8×HandOff; and never
// longer than one TTL.

// handOffOutcome is what became of a claim whose grant has ended.
type handOffOutcome int

const (
	nobodyWaits    handOffOutcome = iota // it leaves the line
	nextAfterLeave                       // it leaves the line, then wakeAfterLeave is called
	handedOff                            // it has another holder, or waits for a Reserve
)

// maxReserve is how many times HandOff one Reserve asks for at most.
const maxReserve = 4

// handOff gives the claim of l, whose grant has just ended, to the next goroutine here. It
// does not if other processes have waited for a whole turn, or if little of the lease is
// left. The release is reported before the next grant.
func (q *localQueue) handOff(l *Lease, now int64) handOffOutcome {
	cl := l.claim
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	if q.claim != cl {
		return nobodyWaits
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if q.keepsLocked(cl, now) {
		l.sendEnd(EventReleased, now, nil)
		q.passLocked(cl, now)
		return handedOff
	}
	q.claim = nil
	if cl.others == othersInFront {
		// Others are in line. Their grant comes sooner if the store gets the Leave before the
		// Enter of our next goroutine.
		q.hasFront = true
		return nextAfterLeave
	}
	q.wakeNextLocked()
	return nobodyWaits
}

// wakeAfterLeave lets the next goroutine join the line after the Leave of the claim before.
func (q *localQueue) wakeAfterLeave() {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	q.wakeNextLocked()
}

// keepsLocked reports whether the claim, which has no holder, stays for the next goroutine. If
// its turn is over, it stays only if the store is asked for another. The mutex of the claim is
// held, too.
func (q *localQueue) keepsLocked(cl *claim, now int64) bool {
	return len(q.waiting) > 0 && cl.healthyLocked(now) &&
		(!cl.turnOverLocked(now) || q.reserving == cl || q.reserveLocked(cl, now))
}

// passLocked gives the claim to the next goroutine, at once or when the store has answered a
// Reserve. It asks for more tokens if they will be needed soon. The mutex of the claim is held,
// too.
func (q *localQueue) passLocked(cl *claim, now int64) {
	if cl.turnOverLocked(now) {
		q.hasFront, q.parked = true, true
		return
	}
	next := q.popLocked()
	next.wakeup <- wakeup{lease: cl.grantLocked(next, now, true)}
	if cl.span-cl.used <= cl.usedSoon || now-cl.turnStart > int64(cl.ttl)/2 {
		q.reserveLocked(cl, now)
	}
}

// healthyLocked reports whether the claim may get another holder: it is granted, its
// renewals succeed, half of its lease is left, and nobody has asked for it by Revoke.
func (cl *claim) healthyLocked(now int64) bool {
	return cl.state == stateHeld && cl.c.life.open() &&
		!cl.atRisk && cl.deadline.Load()-now >= believed(cl.ttl)/2 && !cl.revokedLocked()
}

// turnOverLocked reports whether the turn is over: the span is used up, or one lease has passed.
func (cl *claim) turnOverLocked(now int64) bool {
	return cl.used >= cl.span || now-cl.turnStart >= int64(cl.ttl)
}

// reserveLocked asks the store for more tokens: HandOff, or as many as will be used soon. It
// does not if other processes are in line, or may be. The mutex of the claim is held, too.
func (q *localQueue) reserveLocked(cl *claim, now int64) bool {
	c := cl.c
	more := max(cl.usedSoon, int32(c.options.HandOff))
	switch {
	case c.reserver == nil, q.reserving == cl, cl.others != othersUnseen, cl.uncertain, cl.noRenewal:
		return false
	case cl.span-cl.used > more, cl.span+more > driver.MaxSpan:
		return false
	}
	q.reserving = cl
	c.life.beginWork()
	go q.reserve(cl, cl.ticketLocked(), cl.span+more, cl.used, now)
	return true
}

// reserve sends one Reserve, at time sent, when used tokens were given. Meanwhile the claim
// serves the tokens that it has. If the answer is lost, the new tokens are not used.
func (q *localQueue) reserve(cl *claim, t driver.Ticket, span, used int32, sent int64) {
	c := cl.c
	defer c.life.endWork()
	call := c.life.acquiring.Call(context.Background(), sent, t.TTL/3) // others wait no longer than one lease
	done, err := c.reserver.Reserve(call, t, int64(span))
	call.End()
	now := c.clock.Now()

	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	if q.reserving == cl {
		q.reserving = nil
	}
	cl.mu.Lock()
	if err == nil && done {
		cl.span, cl.turnStart = span, sent
		most := maxReserve * int32(c.options.HandOff)
		cl.usedSoon = min(2*(cl.used-used), most)
		if q.parked { // the tokens ran out, so the pace is not known
			cl.usedSoon = most
		}
	} else {
		cl.others = max(cl.others, othersBehind)
	}
	cl.mu.Unlock()
	if q.claim == cl && q.parked {
		q.unparkLocked(now)
	}
}

// unparkLocked gives the claim, which waited for a Reserve, to the next goroutine, or takes
// it out of the line.
func (q *localQueue) unparkLocked(now int64) {
	cl := q.claim
	q.hasFront, q.parked = false, false
	cl.mu.Lock()
	keeps := q.keepsLocked(cl, now)
	if keeps {
		q.passLocked(cl, now)
	} else {
		cl.leaveInBackgroundLocked(driver.Exit{})
	}
	cl.mu.Unlock()
	if keeps {
		q.refuseTriesLocked()
	} else {
		q.claim = nil
		q.wakeNextLocked()
	}
}
