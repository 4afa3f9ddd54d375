package fencelock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/limit"
)

// localQueues are the queues of this process, one for each key that its goroutines ask for
// exclusively. Its mutex guards all queues and comes first in the lock order.
type localQueues struct {
	c     *Client
	mu    sync.Mutex
	byKey map[string]*localQueue
}

// localQueue holds the goroutines of this process that wait for one key. All of them
// share one claim in the store's line. One goroutine, the front, brings the claim to a
// grant. If the front gives up, the next goroutine goes on with the same claim, in the same
// place of the line. A holder that releases hands the claim to the next goroutine without
// asking the store (handOff).
type localQueue struct {
	queues   *localQueues
	key      string
	claim    *claim // in the store's line; nil if there is none
	hasFront bool   // a goroutine brings the claim to a grant, or a Leave or Reserve is under way
	parked   bool   // the claim has no holder until the store responds to a Reserve
	// reserving is the claim for which a Reserve is under way. It may have left the queue.
	reserving *claim
	waiting   []*acquisition
}

// wakeup wakes a waiting call. Without lease and error, the call is the front.
type wakeup struct {
	lease *Lease
	err   error
}

// join makes the call the front of its queue, or appends it. A try is refused if the claim is
// held here or waits in line. If the front has no response yet, the try waits: the front may
// fail, and then the key may be free.
func (qs *localQueues) join(a *acquisition) (front bool, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if !qs.c.life.open() { // dismissAll may have run already
		return false, ErrClosed
	}
	q := qs.byKey[a.key]
	if q == nil {
		q = &localQueue{queues: qs, key: a.key}
		qs.byKey[a.key] = q
	}
	a.queue = q
	if !q.hasFront && q.claim == nil {
		q.becomeFrontLocked(a)
		return true, nil
	}
	inLine, taken := q.claim.standing()
	if a.try && taken {
		return false, q.heldByLocked(0)
	}
	a.answered = inLine
	q.waiting = append(q.waiting, a)
	a.ahead = len(q.waiting)
	if !a.try {
		a.sendWaiting(func() *HeldError { return q.heldByLocked(a.ahead) })
	}
	return false, nil
}

// awaitWakeup waits until the call is woken or may not wait any longer.
func (a *acquisition) awaitWakeup() wakeup {
	until := a.until
	if a.try {
		until = a.start + int64(a.patience) // the front may wait for a response forever
	}
	var over <-chan time.Time
	if until != never {
		t := clock.NewTimer(time.Duration(until - a.c.clock.Now()))
		defer t.Stop()
		over = t.C
	}
	ended := a.ctx.Done()
	if ended == nil && over == nil {
		return <-a.wakeup // a select costs 14 % of BenchmarkHandOff/512
	}
	select {
	case t := <-a.wakeup:
		return t
	case <-ended:
	case <-over:
	}
	refused := a.queue.leave(a)
	switch {
	case refused == nil: // woken at the same time
		return <-a.wakeup
	case a.ctx.Err() != nil:
		return wakeup{err: &endedError{errContext(a.ctx), refused}}
	}
	return wakeup{err: refused}
}

// leave takes a waiting call out of the queue. The error says who was in the way. It is nil
// if the call was woken already.
func (q *localQueue) leave(a *acquisition) (refused error) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	i := slices.Index(q.waiting, a)
	if i < 0 {
		return nil
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	if a.answered {
		return q.heldByLocked(a.ahead)
	}
	_, a.lastErr = q.claim.lastAnswer()
	return a.lastHeard()
}

// becomeFrontLocked makes a the front. lockAsFront ends the work that begins here.
func (q *localQueue) becomeFrontLocked(a *acquisition) {
	if q.claim == nil {
		q.claim = a.newClaim()
	}
	q.hasFront = true
	a.claim = q.claim
	q.queues.c.life.beginWork()
}

// grantFront makes the front the holder of the claim, as claim.grantTo does. claimLost takes
// the same mutex, so it sees the loss of this grant.
func (q *localQueue) grantFront(a *acquisition, now int64) step {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	s := a.claim.grantTo(a, now)
	if s.outcome == outcomeGranted {
		q.hasFront = false
		q.refuseTriesLocked()
	}
	return s
}

// frontGaveUp ends the time of a as the front, which got no lease. If others wait here and only
// a's own time was over, the claim stays in line for them and the result is true.
func (q *localQueue) frontGaveUp(a *acquisition, end outcome) (kept bool) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	kept = len(q.waiting) > 0 && end != outcomeRefused && a.c.life.open() && a.claim.currentState() != stateEnded
	if !kept {
		q.claim = nil
	}
	q.wakeNextLocked()
	return kept
}

// wakeNextLocked makes the first who waits the front. A queue without claim, front and waiting
// calls is removed. A claim that has left may still refer to it: claimLost and reserve ignore
// a claim that is not the queue's present one.
func (q *localQueue) wakeNextLocked() {
	q.hasFront = false
	switch {
	case len(q.waiting) > 0:
		a := q.popLocked()
		a.blocker, a.lastErr = q.claim.lastAnswer()
		q.becomeFrontLocked(a)
		a.wakeup <- wakeup{}
	case q.claim == nil:
		delete(q.queues.byKey, q.key)
	}
}

// claimLost lets the next goroutine join the line after the holder's claim was lost.
func (q *localQueue) claimLost(cl *claim) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	if q.claim != cl || q.hasFront {
		return // a front sees the loss itself
	}
	q.claim = nil
	q.wakeNextLocked()
}

// replaceClaim sets the claim with which the front enters anew. What those who wait had seen
// of the line is out of date.
func (q *localQueue) replaceClaim(cl *claim) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	q.claim = cl
	for _, a := range q.waiting {
		a.answered = false
	}
}

// storeAnswered notes that the store responded to an Enter of the front without a grant. A claim in
// line refuses the tries that wait for that response.
func (q *localQueue) storeAnswered(inLine bool) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	for _, a := range q.waiting {
		a.answered = true
	}
	if inLine {
		q.refuseTriesLocked()
	}
}

// refuseTriesLocked wakes the tries that waited for the front, because the key is taken.
func (q *localQueue) refuseTriesLocked() {
	q.waiting = slices.DeleteFunc(q.waiting, func(a *acquisition) bool {
		a.answered = true
		if !a.try {
			return false
		}
		a.wakeup <- wakeup{err: q.heldByLocked(0)}
		return true
	})
}

// dismissAll refuses every call that waits, because the Client closes.
func (qs *localQueues) dismissAll() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		for len(q.waiting) > 0 {
			q.popLocked().wakeup <- wakeup{err: ErrClosed}
		}
	}
}

// heldByLocked says who is before a call: a holder in this process, or the first claim in front
// of this one. ahead counts the claims of this process before the call. It takes the mutex of the
// claim itself.
func (q *localQueue) heldByLocked(ahead int) *HeldError {
	h := &HeldError{Key: q.key, Ahead: max(ahead, 1)}
	if q.claim != nil {
		q.claim.describeTo(h)
	}
	return h
}

func (q *localQueue) popLocked() *acquisition {
	a := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return a
}

// A claim serves the goroutines of its local queue one after another, each with the next
// token of its span. Its turn is over when the span is used up or one lease has passed.
// Where the backend is a driver.Reserver and no other process is in line, the store is asked
// for more tokens before that, and the claim gets a new turn.
//
// So other processes wait for at most 2×HandOff grants, or, where grants are quicker than
// the store, for those made during four round trips, at most 8×HandOff; and never
// longer than one TTL.

// handOffOutcome says how a claim went on after its grant had ended.
type handOffOutcome int

const (
	nobodyWaits    handOffOutcome = iota // it leaves the line
	nextAfterLeave                       // it leaves the line, then wakeAfterLeave is called
	handedOff                            // it has another holder, or waits for a Reserve
)

// maxReserve bounds how many times HandOff one Reserve asks for.
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
	outcome := cl.handOn(q, l, now)
	switch outcome {
	case nextAfterLeave:
		// Others are in line. Their grant comes sooner if the store gets the Leave before the
		// Enter of our next goroutine.
		q.claim, q.hasFront = nil, true
	case nobodyWaits:
		q.claim = nil
		q.wakeNextLocked()
	}
	return outcome
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

// passLocked gives the claim to the next goroutine, at once or when the store has responded to a
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
// renewals succeed, half of its lease is left, and no Break has given notice.
func (cl *claim) healthyLocked(now int64) bool {
	return cl.state == stateHeld && cl.c.life.open() &&
		!cl.atRisk && cl.deadline.Load()-now >= believed(cl.ttl)/2 && cl.readRare().notice == nil
}

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
	case cl.span-cl.used > more, cl.span+more > limit.Span:
		return false
	}
	q.reserving = cl
	c.life.beginWork()
	go q.reserve(cl, cl.ticketLocked(), cl.span+more, cl.used, now)
	return true
}

// reserve sends one Reserve, at time sent, when used tokens were given. Meanwhile the claim
// serves the tokens that it has. If the response is lost, the new tokens are not used.
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
	cl.reserved(err == nil && done, span, used, sent, q.parked)
	if q.claim == cl && q.parked {
		q.unparkLocked(now)
	}
}

// unparkLocked gives the claim, which waited for a Reserve, to the next goroutine, or takes
// it out of the line.
func (q *localQueue) unparkLocked(now int64) {
	cl := q.claim
	q.hasFront, q.parked = false, false
	if cl.handOn(q, nil, now) == handedOff {
		q.refuseTriesLocked()
	} else {
		q.claim = nil
		q.wakeNextLocked()
	}
}
