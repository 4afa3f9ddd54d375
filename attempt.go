package fencelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/callctx"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// finalError is an answer that ends a call: asking again would not change it.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func isFinal(err error) bool { return errors.As(err, new(finalError)) }

// errOldLease: the claim is granted, and its lease must be renewed before a caller gets it.
var errOldLease = errors.New("the lease is old") // internal

// obtain brings the call's claim to a grant and takes the grant, or says why not. Another
// call may have brought the claim part of the way.
func (a *acquisition) obtain() (*Lease, error) {
	for {
		if err := a.mayWait(); err != nil {
			return nil, err
		}
		l, err := a.step()
		switch {
		case l != nil:
			return l, nil
		case err == nil:
			continue
		case isFinal(err):
			return nil, err
		}
		// A request that ctx or Wait has cut short says nothing about the store. The error of
		// the request before does.
		if a.lastErr == nil || a.mayWait() == nil {
			a.lastErr = err
		}
		a.attempt++
		if a.queue != nil {
			a.claim.requestFailed(a.lastErr)
		}
		if a.try && a.c.clock.Now() >= a.start+int64(a.patience) {
			return nil, a.failure(err)
		}
		failure := a.failure(err)
		pause, again := a.backoff.pauseAfter(a.attempt, failure)
		if !again {
			return nil, failure
		}
		a.pause(pause)
	}
}

// failure is err, the answer to a request, as the caller may get it.
func (a *acquisition) failure(err error) error {
	if busy, ok := err.(*driver.BusyError); ok {
		return a.heldBy(busy)
	}
	return a.unavailable(err)
}

// unavailable is the package's unavailable for a call that may have sent other requests before
// the one that err answers.
func (a *acquisition) unavailable(err error) error {
	if a.claim != nil {
		err = a.claim.settled(err)
	}
	return unavailable(a.ctx, err)
}

// settled returns err, unless the store may have the claim from an earlier request: then a
// refusal of the last one does not say that nothing happened.
func (cl *claim) settled(err error) error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.uncertain || cl.leaseEnd > 0 {
		return driverutil.Unsettled(err)
	}
	return err
}

// step sends the next request that the claim needs, or takes its grant. Without lease and
// error, the state of the claim has changed.
func (a *acquisition) step() (*Lease, error) {
	switch a.claim.currentState() {
	case stateNew:
		return a.enter()
	case stateWaiting:
		return nil, a.await()
	case stateHeld:
		return a.takeGrant()
	}
	if ended := a.claim.endedForGood(); ended != nil {
		return nil, finalError{ended}
	}
	a.enterAnew()
	return nil, nil
}

// takeGrant makes the call the holder of its claim, or renews a lease that is old.
func (a *acquisition) takeGrant() (l *Lease, err error) {
	if a.queue != nil {
		l, err = a.queue.grantFront(a)
	} else {
		l, err = a.claim.grantTo(a)
	}
	if err == errOldLease {
		return nil, a.renewGrant()
	}
	return l, err
}

// mayWait says why the call ends now, or nil.
func (a *acquisition) mayWait() error {
	switch {
	case a.c.life.acquiring.Err() != nil:
		return ErrClosed
	case a.ctx.Err() != nil:
		return a.ctx.Err()
	case a.until != never && a.c.clock.Now() >= a.until:
		return errWaitOver
	}
	return nil
}

// pause waits for d, and no longer than the call may wait.
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

// enter sends one Enter. An Enter that is repeated finds the claim of the first one.
func (a *acquisition) enter() (*Lease, error) {
	d := a.claim.requestLocked() // only this goroutine changes a new claim
	d.NoWait = a.try || !a.c.info.Fair
	sent := a.c.clock.Now()
	call := a.call(sent, a.enterTimeout(a.enterTTL))
	defer call.End()
	t, err := a.c.backend.Enter(call, d)
	if err != nil {
		return nil, a.enterFailed(err)
	}
	return a.entered(&d, &t, sent)
}

// entered notes t, the store's answer to d: the claim is in line.
func (a *acquisition) entered(d *driver.Claim, t *driver.Ticket, sent int64) (*Lease, error) {
	cl, now := a.claim, a.c.clock.Now()
	cl.mu.Lock()
	if t.TTL > 0 && t.TTL <= a.lockDelay {
		cl.uncertain = true
		cl.mu.Unlock()
		return nil, finalError{invalid("the store has leases of %v, and LockDelay %v leaves nothing of them",
			t.TTL, a.lockDelay)}
	}
	if !cl.confirmLeaseLocked(sent, now, t.Left) {
		cl.uncertain = true
		cl.mu.Unlock()
		return nil, errLate
	}
	cl.joinLocked(d, t, now)
	cl.mu.Unlock()
	a.answered, a.lastErr, a.attempt = true, nil, 0
	if t.Granted {
		a.short = a.short && cl.ttl < a.fullTTL+a.lockDelay
		return a.takeGrant()
	}
	a.blocker, a.ahead = t.Head, t.Ahead
	if a.queue != nil {
		a.queue.storeAnswered(true)
	}
	if a.try {
		// The answer to the first Enter was lost, and the repeated one finds the claim waiting.
		return nil, finalError{a.heldBy(t.Head)}
	}
	a.sendWaiting(a.firstInLine)
	return nil, nil
}

// enterFailed notes err, the answer to an Enter.
func (a *acquisition) enterFailed(err error) error {
	var busy *driver.BusyError
	switch {
	case errors.As(err, &busy):
		return a.refusedBusy(busy)
	case errors.Is(err, driver.ErrKind):
		return finalError{fmt.Errorf("%w; use another key, or wait until it is free", err)}
	case errors.Is(err, driver.ErrReused):
		a.claim.notOurs()
		return finalError{fmt.Errorf("%w; draw a new ClaimID for each wish", err)}
	case errors.Is(err, driver.ErrPermanent), errors.Is(err, driver.ErrClosed), errors.As(err, new(ballot.Error)):
		return finalError{unavailable(context.Background(), a.claim.settled(err))}
	}
	cl := a.claim
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case errors.Is(err, driver.ErrRefused):
		return err // nothing of it is in line, or will be
	case !driver.Gone(err):
		cl.uncertain = true
		return err
	}
	reason, operator := goneDetail(err)
	cl.state = stateEnded
	cl.writeRare().lost = cl.loss(ErrBroken, 0, reason)
	cl.rare.lost.by = lossOf(operator)
	return nil
}

// notOurs ends a claim whose ID is that of another wish: nothing is sent for that ID any more.
func (cl *claim) notOurs() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.state = stateEnded
}

// refusedBusy notes that an Enter without waiting was refused.
func (a *acquisition) refusedBusy(busy *driver.BusyError) error {
	a.answered, a.blocker, a.ahead = true, busy, busy.Ahead
	if a.queue != nil {
		cl := a.claim
		cl.mu.Lock()
		said := &cl.writeRare().said
		said.blocker, said.ahead, said.lastErr = busy, busy.Ahead, nil
		cl.mu.Unlock()
		a.queue.storeAnswered(false)
	}
	if a.try {
		return finalError{busy}
	}
	a.sendWaiting(a.firstInLine)
	return busy // a backend without a line is asked again after a pause
}

// await waits in line until the claim may have been granted or lost.
func (a *acquisition) await() error {
	cl, c := a.claim, a.c
	cl.mu.Lock()
	if cl.state != stateWaiting {
		cl.mu.Unlock()
		return nil
	}
	t := cl.ticketLocked()
	// A driver returns after about a second. The limit ends an Await that hangs.
	call := a.call(c.clock.Now(), 2*time.Second+t.TTL/3)
	defer call.End()
	cl.writeRare().interrupt = call.End
	cl.mu.Unlock()

	got, err := c.backend.Await(call, t)

	cl.mu.Lock()
	defer cl.unlock()
	cl.rare.interrupt = nil
	now := c.clock.Now()
	switch {
	case cl.state != stateWaiting:
		return nil // lost meanwhile
	case now >= cl.deadline.Load():
		cl.loseLocked(cl.lossLocked(ErrExpired, ""))
		return nil
	case err == nil:
		a.awaitedLocked(&got, now)
		return nil
	case driver.Gone(err):
		reason, operator := goneDetail(err)
		cl.goneLocked(reason, max(lossOf(operator), lossByReading))
		return nil
	case call.Err() != nil:
		return nil // cut short; mayWait says why
	case errors.Is(err, driver.ErrPermanent), errors.Is(err, driver.ErrClosed):
		return finalError{unavailable(context.Background(), driverutil.Unsettled(err))} // the claim is in line
	}
	return err
}

// awaitedLocked notes the answer to an Await. The mutex of the claim is held.
func (a *acquisition) awaitedLocked(got *driver.Ticket, now int64) {
	cl := a.claim
	said := &cl.rare.said
	a.lastErr, a.attempt, said.lastErr = nil, 0, nil
	if got.Granted {
		cl.granted, said.mark, said.ahead = true, got.Mark, 0
		cl.state, cl.atRisk = stateHeld, false
		cl.planLocked(now)
		return
	}
	a.ahead, said.ahead = got.Ahead, got.Ahead
	if got.Head != nil {
		a.blocker, said.blocker = got.Head, got.Head
	}
}

// renewGrant renews the lease of the granted claim, before the caller gets it.
func (a *acquisition) renewGrant() error {
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
	now := c.clock.Now()

	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.state == stateHeld && err == nil {
		cl.ttl, a.short = t.TTL, false
	}
	cl.renewedLocked(t.TTL, sent, now, err)
	if cl.state != stateHeld {
		return nil // lost
	}
	return err
}

// endedForGood returns the loss of a claim that no other claim may replace, because an
// operator ended it, or because the program has named it; else nil.
func (cl *claim) endedForGood() error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	lost := cl.readRare().lost
	if lost == nil || lost.by != lossByOperator && !cl.named {
		return nil
	}
	return lost
}

// enterAnew replaces a claim that ended while it waited by a new one, which joins the line
// behind all others, and behind the old one until its Leave has arrived.
func (a *acquisition) enterAnew() {
	old := a.claim
	if !a.leaveUnseen(old) {
		old.leaveIfEntered()
	}
	a.claim = a.newClaim()
	a.answered = false // what the store said of the line is out of date
	if a.queue != nil {
		a.queue.replaceClaim(a.claim)
	}
}

// leaveUnseen takes a claim out of the line that a reading did not find there, before another one
// enters, and reports whether it was such a claim. A store that lags behind may have answered the
// reading; the claim would be granted then, and the new one would wait behind it for a TTL.
func (a *acquisition) leaveUnseen(cl *claim) bool {
	cl.mu.Lock()
	lost := cl.readRare().lost
	t, e := cl.leaveTicketLocked(), driver.Exit{Tombstone: cl.mayEnterLocked()}
	cl.mu.Unlock()
	if lost == nil || lost.by != lossByReading {
		return false
	}
	now := a.c.clock.Now()
	call := a.call(now, leaveTimeout(t.TTL))
	defer call.End()
	if err := a.c.backend.Leave(call, t, e); !leaveDecided(err) {
		cl.mu.Lock()
		cl.leaveLaterLocked(now, driver.Exit{})
		cl.mu.Unlock()
	}
	return true
}

// leaveIfEntered sends a Leave for a claim that has ended, in the background, unless the
// store cannot know the claim.
func (cl *claim) leaveIfEntered() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.leaseEnd > 0 || cl.uncertain {
		cl.leaveLaterLocked(cl.c.clock.Now(), driver.Exit{})
	}
}

// giveUp takes the call's claim out of the line: now, if the caller has time and the store
// responds; in the background otherwise.
//
// A named claim leaves only if it still waits: a repeated call in another process may have
// returned the grant already. If the claim is granted, giveUp reports true and the call goes on
// with it. No other call can have a claim without a name, so that claim leaves also when it was
// granted a moment ago: it would keep the key closed until its lease ends.
func (a *acquisition) giveUp() (granted bool) {
	cl, c := a.claim, a.c
	cl.mu.Lock()
	switch {
	case cl.leavesLocked(),
		cl.state == stateNew && !cl.uncertain,
		cl.state == stateEnded && (cl.named || !cl.uncertain && cl.leaseEnd == 0):
		cl.mu.Unlock()
	case a.ctx.Err() != nil || c.life.acquiring.Err() != nil || a.lastErr != nil:
		cl.leaveInBackgroundLocked(driver.Exit{})
		cl.mu.Unlock()
	default:
		cl.mu.Unlock()
		_, err := cl.leave(a.ctx, driver.Exit{IfWaiting: cl.named}, min(closeBudget, a.enterTTL/3))
		return errors.Is(err, driver.ErrGranted)
	}
	return false
}

// takeNamed gets the grant of the call's named claim, which giveUp has found. It waits no longer
// than one request may take. If it fails, the claim stays until its lease ends.
func (a *acquisition) takeNamed() (*Lease, error) {
	cl, c := a.claim, a.c
	now := c.clock.Now()
	cl.mu.Lock()
	cl.state = stateWaiting
	cl.planLocked(now)
	cl.mu.Unlock()
	a.until, a.try = now+int64(a.enterTimeout(a.enterTTL)), false
	l, err := a.obtain()
	if err != nil {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		if cl.state == stateWaiting || cl.state == stateHeld {
			cl.state = stateEnded
			cl.planLocked(c.clock.Now())
		}
	}
	return l, err
}
