package fencelock

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/fence"
)

// localQueues are the queues of this process, one for each key that its goroutines want
// exclusively. Its mutex guards all queues and comes first in the lock order.
type localQueues struct {
	c     *Client
	mu    sync.Mutex
	byKey map[string]*localQueue
	spare []*localQueue
}

// localQueue is where the goroutines of this process that want one key wait. All of them
// share one claim in the store's line. One goroutine, the front, brings the claim to a
// grant. If the front gives up, the next goroutine goes on with the same claim, in the same
// place of the line. A holder that releases hands the claim to the next goroutine without
// asking the store (handoff.go).
type localQueue struct {
	queues *localQueues
	key    string

	claim       *claim       // in the store's line; nil if there is none
	inLine      bool         // the store has answered that the claim waits or is granted
	hasFront    bool         // a goroutine brings the claim to a grant, or a Leave or Reserve is under way
	first, last *acquisition // a list of those who wait
	length      int32

	answers int32 // Enters that the store has answered
	lastErr error // of the front's last request; nil after an answer

	parked      bool   // the claim has no holder until the store answers a Reserve
	reserving   *claim // the claim for which a Reserve is under way
	reserveTook int64  // duration of the last Reserve that succeeded
}

// waiter is the place of an acquisition in a local queue. The queue's mutex guards it until
// the acquisition is woken. One of isFront, lease and err is set before that.
type waiter struct {
	prev, next *acquisition
	queued     bool
	sawInLine  bool          // the queue's inLine on arrival
	sawAnswers int32         // the queue's answers on arrival
	ready      chan struct{} // receives one value when the acquisition is woken
	isFront    bool
	lease      *Lease
	err        error
}

// lockInQueue gets the lock by way of the local queue.
func (a *acquisition) lockInQueue() (*Lease, error) {
	for {
		front, err := a.c.queues.join(a)
		if err != nil {
			return nil, err
		}
		if !front {
			if err := a.awaitTurn(); err != nil {
				return nil, err
			}
		}
		if front || a.waiter.isFront {
			return a.lockAsFront()
		}
		l := a.waiter.lease
		// A lease that is handed over as ctx ends is released in the background.
		if a.ctx.Err() != nil {
			go l.Release(a.ctx)
			return nil, &endedError{errContext(a.ctx), a.heldBy(nil)}
		}
		if l.Err() == nil {
			return l, nil
		}
		// The claim was lost since it was handed over.
	}
}

// lockAsFront brings the claim of the queue to a grant for the call.
func (a *acquisition) lockAsFront() (*Lease, error) {
	defer a.c.life.endWork()
	l, err := a.obtain()
	if err != nil {
		if !a.queue.frontGaveUp(a, err) {
			a.giveUp()
		}
		return nil, a.refusal(err)
	}
	return l, nil
}

// join makes the call the front of its queue, or appends it. A try is refused if the claim is
// held here or waits in line. If the front has no answer yet, the try waits: the front may
// fail, and then the key may be free.
func (qs *localQueues) join(a *acquisition) (front bool, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if !qs.c.life.open() { // dismissAll may have run already
		return false, ErrClosed
	}
	q := qs.byKey[a.key]
	if q == nil {
		q = qs.addLocked(a.key)
	}
	a.queue = q
	if !q.hasFront && q.claim == nil {
		q.becomeFrontLocked(a)
		return true, nil
	}
	if a.try && q.claim != nil && q.claim.taken() {
		return false, q.heldByLocked(a.ahead)
	}
	a.clockRead = 0
	w := &a.waiter
	w.sawInLine, w.sawAnswers, w.lease = q.inLine, q.answers, nil
	q.pushLocked(a)
	a.ahead = int(q.length)
	if !a.try {
		a.sendWaiting()
	}
	return false, nil
}

// maxSpareQueues bounds the queues that are kept for other keys.
const maxSpareQueues = 64

// addLocked makes the queue of key. It uses a spare queue if there is one, because a free
// lock otherwise allocates and drops one queue.
func (qs *localQueues) addLocked(key string) *localQueue {
	var q *localQueue
	if n := len(qs.spare); n > 0 {
		q, qs.spare = qs.spare[n-1], qs.spare[:n-1]
	} else {
		q = &localQueue{queues: qs} // which a call that was woken may still read
	}
	q.key, q.inLine, q.answers, q.lastErr, q.reserving, q.reserveTook = key, false, 0, nil, nil, 0
	qs.byKey[key] = q
	return q
}

// removeLocked removes a queue without claim, front and waiting calls. A claim that has left
// the queue may still refer to it: claimLost and reserve ignore a claim that is not the
// queue's present one.
func (qs *localQueues) removeLocked(q *localQueue) {
	if qs.byKey[q.key] != q {
		return
	}
	delete(qs.byKey, q.key)
	if len(qs.spare) < maxSpareQueues {
		qs.spare = append(qs.spare, q)
	}
}

// awaitTurn waits until the call is woken, and fails if it was refused or may not wait any
// longer.
func (a *acquisition) awaitTurn() error {
	ended := a.awaitWake()
	if ended == nil {
		return a.waiter.err
	}
	refused, left := a.queue.leave(a)
	switch {
	case !left: // woken at the same time
		<-a.waiter.ready
		return a.waiter.err
	case ended == errWaitOver:
		return refused
	}
	return &endedError{errContext(a.ctx), refused}
}

// awaitWake waits until the call is woken, or says why it waits no longer.
func (a *acquisition) awaitWake() error {
	until := a.until
	if a.try {
		until = a.start + int64(a.patience) // the front may wait for an answer for ever
	}
	var over <-chan time.Time
	if until != never {
		t := newTimer(time.Duration(until - a.c.clock.now()))
		defer t.Stop()
		over = t.C
	}
	done := a.ctx.Done()
	if over == nil && done == nil {
		<-a.waiter.ready
		return nil
	}
	select {
	case <-a.waiter.ready:
		return nil
	case <-done:
		return a.ctx.Err()
	case <-over:
		return errWaitOver
	}
}

// leave takes a waiting call out of the queue. It reports false if the call was woken
// already. The error says who was in the way.
func (q *localQueue) leave(a *acquisition) (refused error, left bool) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	if !a.waiter.queued {
		return nil, false
	}
	q.removeLocked(a)
	switch {
	case a.waiter.sawInLine || q.answers > a.waiter.sawAnswers:
		return q.heldByLocked(a.ahead), true
	case q.lastErr != nil:
		return unavailable(a.ctx, q.lastErr), true
	}
	return unavailable(a.ctx, errNoAnswer), true
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

// removeClaimLocked detaches the claim from the queue.
func (q *localQueue) removeClaimLocked() { q.claim, q.inLine = nil, false }

// grantFront makes the front the holder of the claim, as claim.grantTo does. claimLost takes
// the same mutex, so it sees the loss of this grant.
func (q *localQueue) grantFront(a *acquisition) (*Lease, error) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	l, err := a.claim.grantTo(a)
	if l != nil {
		q.hasFront = false
		q.storeAnsweredLocked(true)
		q.refuseTriesLocked(a.ahead)
	}
	return l, err
}

// frontGaveUp ends the time of a as the front, because of err. If others wait here and only
// a's own time was over, the claim stays in line for them and the result is true.
func (q *localQueue) frontGaveUp(a *acquisition, err error) (kept bool) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	kept = q.first != nil && !isFinal(err) && a.c.life.open() && a.claim.alive()
	if !kept {
		q.removeClaimLocked()
	}
	q.wakeNextLocked()
	return kept
}

// wakeNextLocked makes the first who waits the front, or removes the queue.
func (q *localQueue) wakeNextLocked() {
	q.hasFront = false
	a := q.first
	if a == nil {
		if q.claim == nil {
			q.queues.removeLocked(q)
		}
		return
	}
	q.removeLocked(a)
	if q.claim != nil {
		a.blocker = q.claim.lastBlocker()
	}
	a.answered = a.waiter.sawInLine || q.answers > a.waiter.sawAnswers
	a.lastErr = q.lastErr
	q.becomeFrontLocked(a)
	a.waiter.isFront = true
	a.wake()
}

// claimLost lets the next goroutine join the line after the holder's claim was lost.
func (q *localQueue) claimLost(cl *claim) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	if q.claim != cl || q.hasFront {
		return // a front sees the loss itself
	}
	q.removeClaimLocked()
	q.wakeNextLocked()
}

// replaceClaim sets the claim with which the front enters anew. What those who wait had seen
// of the line is out of date.
func (q *localQueue) replaceClaim(cl *claim) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	q.claim, q.inLine = cl, false
	for a := q.first; a != nil; a = a.waiter.next {
		a.waiter.sawInLine, a.waiter.sawAnswers = false, q.answers
	}
}

// storeAnswered notes that an Enter of the front was answered, and whether its claim is in
// line now.
func (q *localQueue) storeAnswered(inLine bool) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	q.storeAnsweredLocked(inLine)
}

func (q *localQueue) storeAnsweredLocked(inLine bool) {
	q.answers++
	q.lastErr, q.inLine = nil, inLine
}

// requestFailed notes the error of a request of the front.
func (q *localQueue) requestFailed(err error) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	q.lastErr = err
}

// refuseTries answers the tries that waited for the first answer to the front.
func (q *localQueue) refuseTries(ahead int) {
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	q.refuseTriesLocked(ahead)
}

func (q *localQueue) refuseTriesLocked(ahead int) {
	for a := q.first; a != nil; {
		next := a.waiter.next
		if a.try {
			q.removeLocked(a)
			a.waiter.err = q.heldByLocked(ahead)
			a.wake()
		}
		a = next
	}
}

// dismissAll refuses everybody who waits, because the Client closes.
func (qs *localQueues) dismissAll() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		for a := q.first; a != nil; a = q.first {
			q.removeLocked(a)
			a.waiter.err = ErrClosed
			a.wake()
		}
	}
}

// heldByLocked says who is before a call: a holder in this process, or whoever the claim
// waits for. ahead counts the claims of this process before the call.
func (q *localQueue) heldByLocked(ahead int) *HeldError {
	h := &HeldError{Key: q.key, Ahead: max(ahead, 1)}
	cl := q.claim
	if cl == nil {
		return h
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	c := cl.c
	if g := cl.grant; g != nil {
		h.Owner, h.Token, h.Since = c.options.Owner, g.token, c.clock.wall(g.at)
		h.Left = time.Duration(cl.deadline.Load() - c.clock.now())
	} else if b := cl.readRare().blocker; b != nil {
		h.Owner, h.Note, h.Token, h.Since, h.Left = b.Owner, b.Note, fence.Token(b.Token), b.Since, b.Left
		h.Ahead += cl.readRare().ahead
	}
	return h
}

// wake lets a call go that was taken out of the queue.
func (a *acquisition) wake() { a.waiter.ready <- struct{}{} }

func (q *localQueue) pushLocked(a *acquisition) {
	w := &a.waiter
	w.queued, w.prev = true, q.last
	if q.last != nil {
		q.last.waiter.next = a
	} else {
		q.first = a
	}
	q.last = a
	q.length++
}

func (q *localQueue) removeLocked(a *acquisition) {
	w := &a.waiter
	if w.prev != nil {
		w.prev.waiter.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.waiter.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.length--
}
