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

// handOff gives the claim of l, whose grant has just ended, to the next goroutine here, and
// then l is settled. It does not if other processes have waited for a whole turn, or if
// little of the lease is left. The hooks get released before the next grant.
func (q *localQueue) handOff(l *Lease, now int64) handOffOutcome {
	cl := l.grant.claim
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	if q.claim != cl {
		return nobodyWaits
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if q.keepLocked(l.grant, now) {
		_ = l.settleLocked(nil)
		return handedOff
	}
	q.removeClaimLocked()
	if cl.behindOthers {
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

// keepLocked gives the claim of g, which has ended, to the next goroutine, at once or when
// the store has answered a Reserve. It reports false if the claim is to leave.
func (q *localQueue) keepLocked(g *grant, now int64) bool {
	cl := g.claim
	if q.first == nil || !cl.healthyLocked(now) {
		return false
	}
	if cl.turnOverLocked(now) {
		if q.reserving != cl && !q.reserveLocked(cl, now) {
			return false
		}
		g.sendReleased(now, nil)
		q.hasFront, q.parked = true, true
		return true
	}
	next := q.popLocked()
	if next == nil {
		return false
	}
	g.sendReleased(now, nil)
	q.passLocked(cl, next, now)
	return true
}

// healthyLocked reports whether the claim may get another holder: it is granted, its
// renewals succeed and half of its lease is left.
func (cl *claim) healthyLocked(now int64) bool {
	return cl.state == stateHeld && cl.c.life.open() &&
		!cl.atRisk && cl.deadline.Load()-now >= believed(cl.ttl)/2
}

// turnOverLocked reports whether other processes have waited for a whole turn.
func (cl *claim) turnOverLocked(now int64) bool {
	return cl.used >= cl.span || now-cl.turnStart >= int64(cl.ttl)
}

// passLocked gives the claim to next, and asks for more tokens if they will be needed soon.
func (q *localQueue) passLocked(cl *claim, next *acquisition, now int64) {
	next.waiter.lease = cl.grantLocked(next, now, true)
	next.wake()
	if q.reserving != cl && (cl.span-cl.used <= q.usedSoonLocked(cl, now) || now-cl.turnStart > int64(cl.ttl)/2) {
		q.reserveLocked(cl, now)
	}
}

// popLocked removes and returns the first whose context has not ended. It refuses the
// others. The result is nil if nobody waits.
func (q *localQueue) popLocked() *acquisition {
	for a := q.first; a != nil; a = q.first {
		q.removeLocked(a)
		if a.ctx.Err() == nil {
			return a
		}
		a.waiter.err = &endedError{errContext(a.ctx), a.heldBy(nil)}
		a.wake()
	}
	return nil
}

// usedSoonLocked is how many tokens the claim uses, at its pace so far, while the store
// answers twice.
func (q *localQueue) usedSoonLocked(cl *claim, now int64) int32 {
	used, elapsed := int64(cl.used-cl.usedAtTurnStart), max(now-cl.turnStart, 1)
	return int32(min(2*q.reserveTook*used/elapsed, driver.MaxSpan))
}

// reserveLocked asks the store for more tokens: HandOff, or as many as will be used soon. It
// does not if other processes are in line, or may be.
func (q *localQueue) reserveLocked(cl *claim, now int64) bool {
	c := cl.c
	handOff := int32(c.options.HandOff)
	more := min(max(q.usedSoonLocked(cl, now), handOff), maxReserve*handOff)
	switch {
	case c.reserver == nil, cl.behindOthers, cl.contended, cl.uncertain, cl.fixed:
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
	call := c.life.acquiring.call(context.Background(), sent, t.TTL/3) // others wait no longer than one lease
	done, err := c.reserver.Reserve(call, t, int64(span))
	call.end()
	now := c.clock.now()

	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	if q.reserving != cl {
		return // the queue has another claim by now
	}
	q.reserving = nil
	cl.mu.Lock()
	if err == nil && done {
		cl.span, cl.turnStart, cl.usedAtTurnStart = span, sent, used
		q.reserveTook = now - sent
	} else {
		cl.contended = true
	}
	cl.mu.Unlock()
	if q.parked {
		q.unparkLocked(cl, now)
	}
}

// unparkLocked gives the claim, which waited for a Reserve, to the next goroutine, or takes
// it out of the line.
func (q *localQueue) unparkLocked(cl *claim, now int64) {
	q.hasFront, q.parked = false, false
	if ahead, passed := q.passParkedLocked(cl, now); passed {
		q.refuseTriesLocked(ahead)
		return
	}
	q.removeClaimLocked()
	q.wakeNextLocked()
}

// passParkedLocked passes the claim to the next goroutine, and reports the place in the queue
// that this one had. If it cannot, it takes the claim out of the line.
func (q *localQueue) passParkedLocked(cl *claim, now int64) (ahead int, passed bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.healthyLocked(now) && !cl.turnOverLocked(now) {
		if next := q.popLocked(); next != nil {
			ahead = next.ahead // next is not ours any more once it is woken
			q.passLocked(cl, next, now)
			return ahead, true
		}
	}
	cl.leaveInBackgroundLocked(driver.Exit{})
	return 0, false
}
