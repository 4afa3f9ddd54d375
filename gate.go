package fencelock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// gate is where the goroutines of one Client queue for a key that they want
// exclusively. One of them, the front, stands in the store's line for all; the
// claim belongs to the gate, so when the front goes away the next one goes on with
// it, in the same place. A holder that releases hands the claim to the next
// goroutine without asking the store, with the next token of the claim's span.
//
// So a process with many goroutines on one hot key is one claim in the line, and
// most of its grants cost no round trip. While nobody else is in line, the store is asked
// for more tokens before the span is used up. The others wait no longer than two times
// HandOff grants, or those that are made while the store answers four times, and one lease.
//
// Everything here is guarded by the Client's mutex.
type gate struct {
	claim *claim  // in the line, granted or not; nil if there is none
	first *waiter // of the queue
	last  *waiter

	lastErr error // why the store did not answer the last time, or nil
	heard   int32 // answers of the store
	queue   int32
	front   bool // somebody is bringing claim to a grant

	parked bool   // nobody has the grant until the store has said whether claim may go on
	asked  *claim // for which the store is asked for more tokens
	took   int64  // how long it took to answer that, the last time
}

// waiter is a goroutine at a gate. One of lease, err and isFront is set before it is
// woken.
type waiter struct {
	ctx        context.Context
	r          request
	prev, next *waiter
	queued     bool
	knew       bool          // when it came, it was known here that the key was taken
	heard      int32         // of the gate, when it came
	ready      chan struct{} // has something in it when it is woken
	isFront    bool          // it has become the front
	lease      *Lease        // it has been handed the claim
	err        error         // it is refused
}

// wake lets a goroutine go that is in the queue no more. c.mu is held.
func (w *waiter) wake() { w.ready <- struct{}{} }

// newWaiter is one for the queue of g. c.mu is held.
func (c *Client) newWaiter(ctx context.Context, r *request, g *gate) *waiter {
	w, _ := c.waiters.Get().(*waiter)
	if w == nil {
		w = &waiter{ready: make(chan struct{}, 1)}
	}
	w.ctx, w.r, w.heard = ctx, *r, g.heard
	w.r.asked = 0
	w.knew = g.claim != nil && (g.claim.state == waiting || g.claim.state == held)
	return w
}

// oldWaiter keeps one that has gone, and was heard, for the next.
func (c *Client) oldWaiter(w *waiter) {
	*w = waiter{ready: w.ready}
	c.waiters.Put(w)
}

// dismiss sends all away that queue at gates: the Client closes. c.mu is held.
func (c *Client) dismiss() {
	for _, g := range c.gates {
		for w := g.first; w != nil; w = g.first {
			g.remove(w)
			w.err = ErrClosed
			w.wake()
		}
	}
}

// newGate makes the gate of key. c.mu is held.
func (c *Client) newGate(key string) *gate {
	var g *gate
	if n := len(c.spareGates); n > 0 {
		g, c.spareGates = c.spareGates[n-1], c.spareGates[:n-1]
	} else {
		g = &gate{}
	}
	c.gates[key] = g
	return g
}

// spareGates is how many gates that nobody uses are kept for the next keys.
const spareGates = 64

// dropGate removes g, the gate of key, at which nobody queues or stands. c.mu is held.
func (c *Client) dropGate(g *gate, key string) {
	if c.gates[key] != g {
		return
	}
	delete(c.gates, key)
	if len(c.spareGates) < spareGates {
		*g = gate{}
		c.spareGates = append(c.spareGates, g)
	}
}

func (g *gate) push(w *waiter) {
	w.queued, w.prev = true, g.last
	if g.last != nil {
		g.last.next = w
	} else {
		g.first = w
	}
	g.last = w
	g.queue++
}

func (g *gate) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		g.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		g.last = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	g.queue--
}

// throughGate takes the key of r through its gate. c.mu is held on entry and free
// on return. If the lock was handed on to r, handed is true and the call has been
// counted off.
func (c *Client) throughGate(ctx context.Context, r *request) (l *Lease, handed bool, err error) {
	g := c.gates[r.key]
	if g == nil {
		g = c.newGate(r.key)
	}
	if !g.front && g.claim == nil {
		l, err = c.lead(ctx, r, g) // unlocks
		return l, false, err
	}
	// A try is refused here if it is known that another one is before it. If the
	// front has no answer yet, the try waits for that answer: the front may fail,
	// and then nobody would have the lock that this call was refused.
	if r.try() && g.claim != nil && (g.claim.grant != nil || g.claim.state == waiting) {
		err := c.inTheWay(g, r)
		c.mu.Unlock()
		return nil, false, err
	}
	w := c.newWaiter(ctx, r, g) // a request that does not queue stays on its caller's stack
	g.push(w)
	w.r.ahead = int(g.queue)
	if !r.try() {
		c.tellWaiting(&w.r)
	}
	c.mu.Unlock()
	l, handed, err = c.inQueue(g, w)
	c.oldWaiter(w)
	return l, handed, err
}

// inQueue waits for a turn at the gate. When it returns, w is known to nobody else.
func (c *Client) inQueue(g *gate, w *waiter) (l *Lease, handed bool, err error) {
	if why := w.wait(c); why != nil {
		c.mu.Lock()
		if w.queued {
			g.remove(w)
			held := c.noTurn(g, w)
			c.mu.Unlock()
			if why == errWaitOver {
				return nil, false, held
			}
			return nil, false, &endedError{ended2(w.ctx), held}
		}
		c.mu.Unlock()
		<-w.ready // it was woken at the same time
	}

	switch {
	case w.err != nil:
		return nil, false, w.err
	case w.isFront:
		c.mu.Lock()
		l, err = c.lead(w.ctx, &w.r, g) // which looks at ctx and Wait itself, and hands on
		return l, false, err
	}
	// A hand-off that crossed the end of ctx goes to the next one, and nobody waits for the
	// store to hear of it.
	if err := w.ctx.Err(); err != nil {
		go w.lease.Release(w.ctx)
		return nil, true, &endedError{ended2(w.ctx), c.heldBy(&w.r, nil)}
	}
	if w.lease.Err() == nil {
		return w.lease, true, nil
	}
	// The claim was lost between the hand-off and this line.
	c.mu.Lock()
	if c.stage != open {
		c.mu.Unlock()
		return nil, true, ErrClosed
	}
	c.calls++
	return c.throughGate(w.ctx, &w.r)
}

// wait waits until w is woken, or says why it waits no longer.
func (w *waiter) wait(c *Client) error {
	until := w.r.until
	if w.r.try() {
		until = w.r.start + int64(w.r.patience) // the front may wait for an answer for ever
	}
	var over <-chan time.Time
	if until != never {
		t := timerFor(time.Duration(until - c.clock.now()))
		defer t.Stop()
		over = t.C
	}
	gone := w.ctx.Done()
	if over == nil && gone == nil {
		<-w.ready
		return nil
	}
	select {
	case <-w.ready:
		return nil
	case <-gone:
		return w.ctx.Err()
	case <-over:
		return errWaitOver
	}
}

// lead brings the gate's claim to a grant, for r, which is its front from now on if
// it was not before. c.mu is held on entry and free on return.
func (c *Client) lead(ctx context.Context, r *request, g *gate) (*Lease, error) {
	g.front = true
	if g.claim == nil {
		g.claim = c.newClaim(r)
		g.claim.gate = g
	}
	cl := g.claim
	c.mu.Unlock()
	for {
		err := c.stand(ctx, r, cl)
		c.mu.Lock()
		if err == nil && c.stage != open {
			err = ErrClosed // Close may have counted what is held already
		}
		if err != nil {
			return nil, c.stepBack(ctx, r, g, cl, err) // unlocks
		}
		if cl.state != held {
			c.mu.Unlock()
			continue // lost since stand looked
		}
		g.front = false
		l := c.grantTo(ctx, r, cl, r.asked, false)
		c.refuseTries(g, r)
		c.mu.Unlock()
		return l, nil
	}
}

// stepBack ends r's time as the front: it did not get the lock, because of err.
// If others wait here, the claim stays in line for them: leaving would cost them
// the place that they have waited for. c.mu is held on entry and free on return.
func (c *Client) stepBack(ctx context.Context, r *request, g *gate, cl *claim, err error) error {
	g.front = false
	mine := !final(err) && !cl.broken && c.stop.Err() == nil // ctx or Wait of r alone
	if g.first != nil && mine && cl.state != ended {
		c.turn(g, r.key)
		c.mu.Unlock()
		return c.refusal(ctx, r, err)
	}
	g.claim = nil
	cl.gate = nil
	c.turn(g, r.key)
	c.mu.Unlock()
	c.giveUp(ctx, r, cl)
	return c.refusal(ctx, r, err)
}

// turn makes the next one in the queue of g, the gate of key, the front, or removes the
// gate. c.mu is held.
func (c *Client) turn(g *gate, key string) {
	w := g.first
	if w == nil {
		c.dropGate(g, key)
		return
	}
	g.remove(w)
	g.front, w.isFront = true, true
	r := &w.r
	r.entered = w.knew || g.heard > w.heard
	if r.lastErr = g.lastErr; g.claim != nil {
		r.busy = g.claim.has().head
	}
	w.wake()
}

// noTurn is what w is told when it leaves the queue: who was in the way, or that
// nobody knows, because the store has not answered since w came. c.mu is held.
func (c *Client) noTurn(g *gate, w *waiter) error {
	switch {
	case w.knew || g.heard > w.heard:
		return c.inTheWay(g, &w.r)
	case g.lastErr != nil:
		return unavailable(w.ctx, g.lastErr)
	}
	return unavailable(w.ctx, errNoAnswer)
}

// handOn gives the gate's claim, whose grant has just ended, to the next goroutine
// here, at once or when the store has said that the claim may go on. It refuses when
// others have waited long enough for us, or when the lease is not in its best health.
// released is what the hooks are told first. c.mu is held.
func (c *Client) handOn(g *gate, cl *claim, now int64, released Event) bool {
	if g.first == nil || !c.inHealth(cl, now) {
		return false
	}
	if cl.spent(now) {
		if g.asked != cl && !c.reserve(g, cl, now) {
			return false
		}
		c.emit(c.o.Hooks.Released, released)
		g.front, g.parked = true, true
		return true
	}
	w := g.next(c)
	if w == nil {
		return false
	}
	c.emit(c.o.Hooks.Released, released)
	c.pass(g, cl, w, now)
	return true
}

// inHealth reports whether cl may be given to somebody. c.mu is held.
func (c *Client) inHealth(cl *claim, now int64) bool {
	return cl.state == held && !cl.atRisk && cl.deadline.Load()-now >= believed(cl.ttl)/2 && c.stage == open
}

// spent reports whether cl has had its turn: others may have waited for it.
func (cl *claim) spent(now int64) bool {
	return cl.used >= cl.span || now-cl.since >= int64(cl.ttl)
}

// pass gives cl to w, and asks for more tokens if it is time to. c.mu is held.
func (c *Client) pass(g *gate, cl *claim, w *waiter, now int64) {
	w.lease = c.grantTo(w.ctx, &w.r, cl, now, true)
	c.calls-- // for w, who need not come here again
	w.wake()
	if g.asked != cl && (cl.span-cl.used <= g.soon(cl, now) || now-cl.since > int64(cl.ttl)/2) {
		c.reserve(g, cl, now)
	}
}

// soon is how many grants there will be, at the pace of cl so far, while the store answers
// twice.
func (g *gate) soon(cl *claim, now int64) int32 {
	return int32(min(2*g.took*int64(cl.used-cl.base)/max(now-cl.since, 1), driver.MaxSpan))
}

// most is how many times HandOff tokens are reserved at once, where grants are quick and
// the store is slow.
const most = 4

// reserve has the store asked for more tokens, unless it is known or likely that others are
// in line: as many as a claim has at first, or as will be used soon. c.mu is held.
func (c *Client) reserve(g *gate, cl *claim, now int64) bool {
	more := min(max(g.soon(cl, now), int32(c.o.HandOff)), most*int32(c.o.HandOff))
	if c.reserver == nil || cl.queued || cl.crowded || cl.unsure || cl.fixed || cl.span-cl.used > more || cl.span+more > driver.MaxSpan {
		return false
	}
	g.asked = cl
	c.calls++
	go c.reserveMore(g, cl, c.ticket(cl), cl.span+more, cl.used, now)
	return true
}

// reserveMore asks the store for tokens, at time sent, when so many are used. While it does,
// the claim serves those that it has. An answer that is lost costs the tokens, and nothing
// else.
func (c *Client) reserveMore(g *gate, cl *claim, t driver.Ticket, span, used int32, sent int64) {
	call := c.callFor(context.Background(), sent, t.TTL/3) // others wait for no longer than a lease
	done, err := c.reserver.Reserve(call, t, int64(span))
	call.end()
	now := c.clock.now()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
	c.moved()
	if g.asked != cl {
		return // the gate has another claim by now, or none
	}
	g.asked = nil
	if err == nil && done {
		cl.span, cl.since, cl.base = span, sent, used
		g.took = now - sent
	} else {
		cl.crowded = true
	}
	if !g.parked {
		return
	}
	g.front, g.parked = false, false
	if c.inHealth(cl, now) && !cl.spent(now) {
		if w := g.next(c); w != nil {
			r := w.r // w goes away
			c.pass(g, cl, w, now)
			c.refuseTries(g, &r)
			return
		}
	}
	g.claim, cl.gate = nil, nil
	c.quit(cl, driver.Exit{})
	c.turn(g, cl.key)
}

// next takes the first out of the queue who still waits, and sends the others away. It is
// nil if there is none. c.mu is held.
func (g *gate) next(c *Client) *waiter {
	for w := g.first; w != nil; w = g.first {
		g.remove(w)
		if w.ctx.Err() == nil {
			return w
		}
		w.err = &endedError{ended2(w.ctx), c.heldBy(&w.r, nil)}
		w.wake()
	}
	return nil
}

// gateLost lets the next goroutine try anew after the gate's claim was lost. c.mu
// is held.
func (c *Client) gateLost(cl *claim) {
	g := cl.gate
	if g == nil || g.claim != cl || g.front {
		return // a front that is at work sees it itself
	}
	g.claim = nil
	c.turn(g, cl.key)
}

// refuseTries answers the tries that waited for r, the front, to have its first
// answer. c.mu is held.
func (c *Client) refuseTries(g *gate, r *request) {
	for w := g.first; w != nil; {
		next := w.next
		if w.r.try() {
			g.remove(w)
			w.err = c.inTheWay(g, r)
			w.wake()
		}
		w = next
	}
}

// inTheWay says who is before r at the gate: a holder in this process, or whoever
// the gate's claim waits for. c.mu is held.
func (c *Client) inTheWay(g *gate, r *request) *HeldError {
	h := &HeldError{Key: r.key, Ahead: max(r.ahead, 1)}
	cl := g.claim
	if cl == nil {
		return h
	}
	if hold := cl.grant; hold != nil {
		now := c.clock.now()
		h.Owner, h.Token, h.Since = c.o.Owner, hold.token, c.clock.wall(hold.at)
		h.Left = time.Duration(cl.deadline.Load() - now)
		return h
	}
	if b := cl.has().head; b != nil {
		h.Owner, h.Note, h.Token, h.Since, h.Left = b.Owner, b.Note, fence.Token(b.Token), b.Since, b.Left
		h.Ahead += cl.has().ahead
	}
	return h
}
