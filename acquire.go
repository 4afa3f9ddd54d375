package fencelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/callctx"
	"github.com/fencelock/fencelock/internal/driverutil"
)

type request struct {
	op, key          string
	capacity, weight int64
	takes            optionSet
	permits          bool // of a semaphore
	try              bool // it does not wait
}

// acquisition is one call that asks for a lease, from its start to its result. Its goroutine
// does all of the work. Others see it only while it waits in a local queue.
type acquisition struct {
	request
	callOptions
	c   *Client
	ctx context.Context

	enterTTL time.Duration // lease of the claim when it enters, without its LockDelay
	fullTTL  time.Duration // lease with NoRenewal of a call that may wait; else 0
	short    bool          // the claim still has to get a lease of fullTTL, from its grant on
	patience time.Duration // of a try
	start    int64
	until    int64 // when waiting ends

	adopts *handle // the claim to adopt; nil to enter a new one
	trace  string  // of Options.Trace
	claim  *claim
	queue  *localQueue // nil if the call does not queue in this process
	wakeup chan wakeup // wakes the call in its queue; holds one

	answered   bool   // the store has responded to an Enter; guarded by the queue while the call waits there
	waitNumber uint64 // number of the wait that was reported; 0 if none was
	attempt    int
	lastErr    error             // of the last request, nil after a response
	blocker    *driver.BusyError // the holder in the last response
	inTheWay   *HeldError        // who held the key when the call began to wait, for its events
	ahead      int
}

// acquire implements Lock, TryLock, RLock, Acquire and Once.
func (c *Client) acquire(ctx context.Context, r request, opts []Option) (*Lease, error) {
	a := newAcquisition(ctx, c, r)
	defer a.free()
	l, err := a.run(opts)
	return l, a.refused(err)
}

// refused returns err, why the call got no lease, as the caller gets it, and reports it.
func (a *acquisition) refused(err error) error {
	if events := &a.c.events; err != nil && events.On != nil {
		e := a.event()
		e.Err, e.Wait, e.Took = err, a.waitNumber, time.Duration(a.c.clock.Now()-a.start)
		errors.As(err, &e.HeldBy)
		events.send(EventRefused, e)
	}
	return wrap(a.op, a.key, err)
}

func (a *acquisition) event() Event {
	e := Event{Context: a.ctx, Key: a.key}
	e.Owner, e.Note, e.Trace = a.owner, a.note, a.trace
	e.setKind(a.capacity, a.weight)
	return e
}

func newAcquisition(ctx context.Context, c *Client, r request) *acquisition {
	a, _ := c.acquisitions.Get().(*acquisition)
	if a == nil {
		a = &acquisition{wakeup: make(chan wakeup, 1)}
	}
	a.request, a.c, a.ctx = r, c, ctx
	a.start = c.clock.Now()
	return a
}

// free keeps a for another call. No other goroutine has a any more. Without it, a pair takes
// 25 % more in BenchmarkFreeLock, and twice as much in BenchmarkHandOff/512.
func (a *acquisition) free() {
	c := a.c
	*a = acquisition{wakeup: a.wakeup}
	c.acquisitions.Put(a)
}

// run shares a lease that the context carries, or gets a new one.
func (a *acquisition) run(opts []Option) (*Lease, error) {
	if err := a.prepare(opts); err != nil {
		return nil, err
	}
	if l, err := a.share(); l != nil || err != nil {
		return l, err
	}
	if a.queuesLocally() {
		return a.lockInQueue()
	}
	return a.lockAlone()
}

func (a *acquisition) lockAlone() (*Lease, error) {
	if err := a.c.life.beginAcquisition(); err != nil {
		return nil, err
	}
	defer a.c.life.endWork()
	if err := a.beginNamed(); err != nil {
		return nil, err
	}
	defer a.endNamed()
	a.claim = a.newClaim()
	s := a.obtain()
	if s.outcome != outcomeGranted && a.giveUp() {
		s = a.takeNamed()
	}
	return s.lease, a.refusal(s.err)
}

// lockInQueue gets the lock by way of the local queue.
func (a *acquisition) lockInQueue() (*Lease, error) {
	for {
		front, err := a.c.queues.join(a)
		if err != nil {
			return nil, err
		}
		if front {
			return a.lockAsFront()
		}
		t := a.awaitWakeup()
		switch {
		case t.err != nil:
			return nil, t.err
		case t.lease == nil:
			return a.lockAsFront()
		case a.ctx.Err() != nil: // a lease that is handed over as ctx ends is released in the background
			go t.lease.Release(a.ctx)
			return nil, &endedError{errContext(a.ctx), a.heldBy(nil)}
		case t.lease.ended() == nil: // else the claim was lost since it was handed over
			return t.lease, nil
		}
	}
}

// lockAsFront brings the claim of the queue to a grant for the call.
func (a *acquisition) lockAsFront() (*Lease, error) {
	defer a.c.life.endWork()
	s := a.obtain()
	if s.outcome != outcomeGranted && !a.queue.frontGaveUp(a, s.outcome) {
		a.giveUp()
	}
	return s.lease, a.refusal(s.err)
}

type outcome uint8

const (
	outcomeGranted outcome = iota // the call has its lease
	outcomeRefused                // the call ends: asking again would not change the result
	outcomeWaiting                // the claim is in line
	outcomeRetry                  // the request failed, and may be repeated
	outcomeGone                   // the claim has ended
)

type step struct {
	outcome outcome
	lease   *Lease // granted
	err     error  // refused: for the caller; retry: the error of the request
}

func refuse(err error) step { return step{outcome: outcomeRefused, err: err} }

func retry(err error) step { return step{outcome: outcomeRetry, err: err} }

// obtain brings the call's claim to a grant and takes the grant. Another call may have brought
// the claim part of the way. The step is one of three: granted, refused, or retry if this call
// gives up and another one may go on with the claim. err is for the caller.
func (a *acquisition) obtain() step {
	for {
		if err := a.mayWait(); err != nil {
			return retry(err)
		}
		s := a.next()
		switch s.outcome {
		case outcomeGranted, outcomeRefused:
			return s
		case outcomeWaiting, outcomeGone:
			continue
		}
		if err := a.pauseAfter(s.err); err != nil {
			return retry(err)
		}
		if !a.c.info.Fair && a.adopts == nil {
			a.claim.wishAnew()
		}
	}
}

// pauseAfter waits before the request that failed with err is repeated, or says why it is not.
func (a *acquisition) pauseAfter(err error) error {
	// A request that ctx or Wait has cut short says nothing about the store. The error of
	// the request before does.
	if a.lastErr == nil || a.mayWait() == nil {
		a.lastErr = err
	}
	a.attempt++
	if a.queue != nil {
		a.claim.notGranted(nil, a.lastErr)
	}
	failure := a.unavailable(err)
	if busy, ok := err.(*driver.BusyError); ok {
		failure = a.heldBy(busy)
	}
	if a.try && a.c.clock.Now() >= a.start+int64(a.patience) {
		return failure
	}
	pause, again := a.backoff.pauseAfter(a.attempt, failure)
	if !again {
		return failure
	}
	a.pause(pause)
	return nil
}

// next sends the next request that the claim needs, or takes its grant.
func (a *acquisition) next() step {
	switch a.claim.currentState() {
	case stateNew:
		return a.enter()
	case stateWaiting:
		return a.await()
	case stateHeld:
		return a.takeGrant(a.c.clock.Now())
	}
	if lost := a.claim.endedForGood(); lost != nil {
		return refuse(lost)
	}
	return a.enterAnew()
}

// takeGrant gives the grant of the claim to the call, or renews a lease of which less than two thirds are left.
func (a *acquisition) takeGrant(now int64) step {
	var s step
	if a.queue != nil {
		s = a.queue.grantFront(a, now)
	} else {
		s = a.claim.grantTo(a, now)
	}
	if s.outcome == outcomeRetry {
		return a.renewGrant()
	}
	return s
}

// mayWait returns nil as long as the call may wait, and else why not: Close or Shutdown, the end of ctx, or of Wait.
func (a *acquisition) mayWait() error {
	switch {
	case a.c.life.acquiring.Err() != nil:
		return ErrClosed
	case a.ctx.Err() != nil:
		return a.ctx.Err()
	case a.until != never && a.c.clock.Now() >= a.until:
		return a.lastHeard()
	}
	return nil
}

// unavailable works as the package's unavailable for a call that may have sent other requests before
// the one that failed with err.
func (a *acquisition) unavailable(err error) error {
	if a.claim != nil {
		err = a.claim.settled(err)
	}
	return unavailable(a.ctx, err)
}

func (a *acquisition) pause(d time.Duration) {
	now := a.c.clock.Now()
	d = min(d, time.Duration(a.until-now))
	if a.try {
		d = min(d, time.Duration(a.start+int64(a.patience)-now))
	}
	a.c.life.pause(a.ctx, d)
}

// call returns the context of a request that begins now and may take d, within Wait.
func (a *acquisition) call(now int64, d time.Duration) *callctx.Call {
	if a.until != never {
		d = min(d, time.Duration(a.until-now))
	}
	return a.c.life.acquiring.Call(a.ctx, now, d)
}

// enter sends one Enter, or one Adopt. One that is repeated finds the claim of the first one.
func (a *acquisition) enter() step {
	d := a.claim.requestLocked() // only this goroutine changes a new claim
	sent := a.c.clock.Now()
	call := a.call(sent, a.enterTimeout())
	defer call.End()
	var t driver.Ticket
	var err error
	if h := a.adopts; h != nil {
		t, err = a.c.backend.(driver.Detacher).Adopt(call, h.ticket, d)
	} else {
		d.NoWait = a.try || !a.c.info.Fair
		t, err = a.c.backend.Enter(call, d)
	}
	if err != nil {
		return a.enterFailed(err)
	}
	now := a.c.clock.Now()
	s := a.claim.entered(&d, &t, sent, now)
	if s.outcome != outcomeWaiting {
		return s
	}
	a.answered, a.lastErr, a.attempt = true, nil, 0
	if t.Granted {
		a.short = a.short && t.TTL < a.fullTTL+a.lockDelay
		return a.takeGrant(now)
	}
	a.blocker, a.ahead = t.Head, t.Ahead
	if a.queue != nil {
		a.queue.storeAnswered(true)
	}
	if a.try {
		// The response to the first Enter was lost, and the repeated one finds the claim waiting.
		return refuse(a.heldBy(t.Head))
	}
	a.sendWaiting(a.firstInLine)
	return s
}

// enterFailed decides whether the error of an Enter or Adopt ends the call, or the request is repeated.
func (a *acquisition) enterFailed(err error) step {
	var busy *driver.BusyError
	switch {
	case a.adopts != nil && driver.Gone(err):
		a.claim.notOurs()
		return refuse(lostHandle(a.adopts, err))
	case errors.As(err, &busy):
		return a.refusedBusy(busy)
	case errors.Is(err, driver.ErrKind):
		return refuse(fmt.Errorf("%w; use another key, or wait until it is free", err))
	case errors.Is(err, driver.ErrReused):
		a.claim.notOurs()
		return refuse(fmt.Errorf("%w; draw a new ClaimID for each wish", err))
	case errors.Is(err, driver.ErrPermanent), errors.Is(err, driver.ErrClosed), errors.As(err, new(ballot.Error)):
		return refuse(unavailable(context.Background(), a.claim.settled(err)))
	}
	return a.claim.enterFailed(err)
}

func (a *acquisition) refusedBusy(busy *driver.BusyError) step {
	a.answered, a.blocker, a.ahead = true, busy, busy.Ahead
	if a.queue != nil {
		a.claim.notGranted(busy, nil)
		a.queue.storeAnswered(false)
	}
	if a.try {
		return refuse(a.heldBy(busy))
	}
	a.sendWaiting(a.firstInLine)
	return retry(busy) // a backend without a line is asked again after a pause
}

// await waits in line until the claim may have been granted or lost.
func (a *acquisition) await() step {
	t, call := a.claim.beginAwait(a)
	if call == nil {
		return step{outcome: outcomeGone}
	}
	defer call.End()
	got, err := a.c.backend.Await(call, t)
	s := a.claim.awaited(&got, err)
	switch {
	case s.outcome == outcomeWaiting:
		a.lastErr, a.attempt = nil, 0
		if !got.Granted {
			a.ahead = got.Ahead
			a.blocker = cmp.Or(got.Head, a.blocker)
		}
	case s.outcome == outcomeGone:
	case call.Err() != nil:
		s.outcome = outcomeWaiting // cut short; mayWait says why
	case errors.Is(err, driver.ErrPermanent), errors.Is(err, driver.ErrClosed):
		return refuse(unavailable(context.Background(), driverutil.Unsettled(err))) // the claim is in line
	}
	return s
}

// renewGrant renews the lease of the granted claim, before the caller gets it.
func (a *acquisition) renewGrant() step {
	cl, c := a.claim, a.c
	t := cl.ticket()
	timeout := renewTimeout(t.TTL - a.lockDelay)
	if a.fullTTL > 0 {
		t.TTL = a.fullTTL + a.lockDelay
	}
	sent := c.clock.Now()
	call := a.call(sent, timeout)
	defer call.End()
	err := renewOne(call, c.backend, t)
	a.short = a.short && err != nil
	return cl.grantRenewed(t.TTL, sent, err)
}

// enterAnew replaces a claim that has ended by a new one, which joins the line behind all others. The old one
// leaves first, unless the store cannot have it: the new one would wait behind it, and a try be refused by it.
func (a *acquisition) enterAnew() step {
	a.answered = false // what the store said of the line is out of date
	if err := a.leaveOld(); err != nil {
		return retry(err)
	}
	a.claim = a.newClaim()
	if a.queue != nil {
		a.queue.replaceClaim(a.claim)
	}
	return step{outcome: outcomeGone}
}

// takeNamed gets the grant of the call's named claim, which giveUp has found. It waits no longer
// than one request may take. If it fails, the claim stays until its lease ends.
func (a *acquisition) takeNamed() step {
	now := a.c.clock.Now()
	a.claim.waitAgain(now)
	a.until, a.try = now+int64(a.enterTimeout()), false
	s := a.obtain()
	if s.outcome != outcomeGranted {
		a.claim.stayUntilItEnds()
	}
	return s
}
