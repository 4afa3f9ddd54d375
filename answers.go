package fencelock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/callctx"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// settled returns err, unless the store may have the claim from an earlier request: then a
// refusal of the last one does not say that nothing happened.
func (cl *claim) settled(err error) error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.mayBeInLineLocked() {
		return driverutil.Unsettled(err)
	}
	return err
}

// entered notes t, the store's response to d: the claim is in line.
func (cl *claim) entered(d *driver.Claim, t *driver.Ticket, sent, now int64) step {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if delay := cl.readRare().lockDelay; t.TTL > 0 && t.TTL <= delay {
		cl.uncertain = true
		return refuse(invalid("the store has leases of %v, and LockDelay %v leaves nothing of them", t.TTL, delay))
	}
	if !cl.confirmLeaseLocked(sent, now, t.Left) {
		cl.uncertain = true
		return retry(errLate)
	}
	cl.joinLocked(d, t, now)
	t.TTL = cl.ttl
	return step{outcome: outcomeWaiting}
}

func (cl *claim) enterFailed(err error) step {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case errors.Is(err, driver.ErrRefused):
		return retry(err) // nothing of it is in line, or will be
	case !driver.Gone(err):
		cl.uncertain = true
		return retry(err)
	}
	gone := goneOf(err)
	cl.state = stateEnded
	cl.writeRare().lost = cl.loss(ErrBroken, 0, gone.Reason)
	cl.rare.lost.by = lossOf(gone)
	return step{outcome: outcomeGone}
}

// wishAnew makes another claim of one that was not granted by a store without a line, unless the program has named it.
// It has no place to lose, and a part of the store that gave no answer may have noted that it must not come back.
func (cl *claim) wishAnew() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case cl.named || cl.state != stateNew:
	case cl.uncertain:
		cl.state = stateEnded // it leaves first
	default:
		cl.id = rand.Text()
	}
}

// notOurs ends a claim that is that of another wish, or that there is not: nothing is sent for it.
func (cl *claim) notOurs() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.state, cl.uncertain = stateEnded, false
}

// notGranted notes that an Enter was refused by the claim of busy, or err, the error of a request
// before the grant, for those who wait with it.
func (cl *claim) notGranted(busy *driver.BusyError, err error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	said := &cl.writeRare().said
	if said.lastErr = err; busy != nil {
		said.blocker, said.ahead = busy, busy.Ahead
	}
}

// beginAwait returns the ticket of a claim that waits, and the context of its Await, which the
// loss of the claim ends.
func (cl *claim) beginAwait(a *acquisition) (t driver.Ticket, call *callctx.Call) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.state != stateWaiting {
		return t, nil
	}
	t = cl.ticketLocked()
	// A driver returns after about a second. The limit ends an Await that hangs.
	call = a.call(cl.c.clock.Now(), 2*time.Second+t.TTL/3)
	cl.writeRare().interrupt = call.End
	return t, call
}

func (cl *claim) awaited(got *driver.Ticket, err error) step {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.rare.interrupt = nil
	now := cl.c.clock.Now()
	switch {
	case cl.state != stateWaiting: // lost meanwhile
	case now >= cl.deadline.Load():
		cl.loseLocked(cl.lossLocked(ErrExpired, ""))
	case err == nil:
		cl.awaitedLocked(got, now)
		return step{outcome: outcomeWaiting}
	case driver.Gone(err):
		gone := goneOf(err)
		if gone.Broken { // else a store that lags behind may have served the reading
			cl.leaseEnd = 0
		}
		cl.loseLocked(cl.brokenLocked(gone.Reason, lossOf(gone)))
	default:
		return retry(err)
	}
	return step{outcome: outcomeGone}
}

func (cl *claim) awaitedLocked(got *driver.Ticket, now int64) {
	said := &cl.rare.said
	said.lastErr = nil
	if got.Granted {
		cl.granted, said.mark, said.ahead = true, got.Mark, 0
		cl.token = max(cl.token, got.Token) // a bridge has its last token when it is granted
		cl.state, cl.atRisk = stateHeld, false
		cl.planLocked(now)
		return
	}
	said.ahead, said.blocker = got.Ahead, cmp.Or(got.Head, said.blocker)
}

// grantRenewed notes the result of the renewal of a granted claim that no call has taken yet.
func (cl *claim) grantRenewed(ttl time.Duration, sent int64, err error) step {
	now := cl.c.clock.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.state == stateHeld && err == nil {
		cl.ttl = ttl
	}
	cl.renewedLocked(ttl, sent, now, err)
	switch {
	case cl.state != stateHeld:
		return step{outcome: outcomeGone}
	case err != nil && goneOf(err).Left <= 0:
		return retry(err)
	}
	return step{outcome: outcomeWaiting}
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

func (cl *claim) waitAgain(now int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.state = stateWaiting
	cl.planLocked(now)
}

// stayUntilItEnds leaves the claim in line until its lease ends.
func (cl *claim) stayUntilItEnds() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.state == stateWaiting || cl.state == stateHeld {
		cl.state = stateEnded
		cl.planLocked(cl.c.clock.Now())
	}
}

// lapse ends the claim of l as lapseLocked does, unless the lease has ended.
func (cl *claim) lapse(l *Lease, now int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if l.ended() == nil {
		cl.lapseLocked(now)
	}
}

// claimBroken is called by a backend that hears of a claim's end, or of the notice of one.
func (c *Client) claimBroken(id string, gone driver.GoneError) {
	for _, cl := range c.schedule.Find(func(cl *claim) bool { return cl.id == id }) {
		cl.mu.Lock()
		cl.heardLocked(gone, c.clock.Now())
		cl.mu.Unlock()
	}
}

// brokenHere notes a Break of the own Client, sent at time sent, if token is in the span of the claim.
func (cl *claim) brokenHere(token fence.Token, gone driver.GoneError, sent int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if t := int64(token); cl.token != 0 && t >= cl.token && t-cl.token < max(int64(cl.span), 1) {
		cl.heardLocked(gone, sent)
	}
}

func (cl *claim) renewalAnswered(ttl time.Duration, sent, now int64, err error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.renewing = nil
	cl.renewedLocked(ttl, sent, now, err)
}

// beginRenew counts a Renew of the holder as work, before Close ends the lease. It returns what
// the holder counts on of the lease, and why the lease is over if it is.
func (cl *claim) beginRenew(l *Lease) (t driver.Ticket, counted time.Duration, err error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if err := l.ended(); err != nil {
		return t, 0, err
	}
	cl.c.life.beginWork()
	return cl.ticketLocked(), cl.countedLocked(cl.ttl), nil
}

// renewed notes the result of a Renew of the holder, unless its lease has ended.
func (cl *claim) renewed(l *Lease, ttl time.Duration, sent int64, err error) {
	now := cl.c.clock.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if l.ended() == nil {
		cl.renewedLocked(ttl, sent, now, err)
	}
}

// renewedLocked notes err, the result of a renewal that was sent at time sent: the lease is longer, the claim is
// gone or under notice, or the outcome is unknown and the renewal is tried again soon.
func (cl *claim) renewedLocked(ttl time.Duration, sent, now int64, err error) {
	if cl.state != stateWaiting && cl.state != stateHeld {
		return
	}
	if cl.lapseLocked(now) {
		// The holder may have seen the end of the lease. A late success does not undo it.
		return
	}
	switch gone := goneOf(err); {
	case driver.Gone(err):
		cl.goneLocked(gone.Reason, lossOf(gone))
		return
	case gone.Left > 0:
		cl.noticedLocked(gone, ttl, sent, now)
		return
	}
	margin := cl.deadline.Load() - now
	if err == nil && cl.confirmLeaseLocked(sent, now, ttl) {
		cl.atRisk = cl.stalledLocked(now)
		if cl.holder != nil {
			cl.holder.send(EventRenewed, func(e *Event) { e.Left = time.Duration(margin) })
		}
		cl.planLocked(now)
		return
	}
	if err == nil {
		err = errLate
	}
	cl.failures++
	failure := unavailable(context.Background(), err)
	pause, _ := cl.c.options.Backoff.pauseAfter(int(cl.failures), failure)
	cl.retryAt = now + min(max(int64(pause), int64(cl.ttl)/1000), int64(cl.ttl)/12)
	cl.riskLocked(now, failure)
	cl.planLocked(now)
}

// beginLeave ends the claim here, and returns what its Leave sends, and the renewal under way.
func (cl *claim) beginLeave(e driver.Exit) (driver.Ticket, driver.Exit, <-chan struct{}) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.state = stateEnded
	cl.c.schedule.Drop(cl)
	e.Tombstone = cl.mayEnterLocked()
	return cl.leaveTicketLocked(), e, cl.renewing
}

// leaveLater schedules a background Leave for time at, after some that failed.
func (cl *claim) leaveLater(at int64, failures int, e driver.Exit) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.failures = int32(failures)
	cl.leaveLaterLocked(at, e)
}

func (cl *claim) scheduledLeave() (driver.Ticket, driver.Exit) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	rare := cl.readRare()
	e := rare.exit
	e.Tombstone, e.Linger = cl.mayEnterLocked(), cl.lingerLeft(e.Linger, rare.exitAt)
	return cl.leaveTicketLocked(), e
}

func (cl *claim) leaveAnswered(err error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	c := cl.c
	now := c.clock.Now()
	if leaveDecided(err) {
		cl.state = stateEnded
		c.life.endWork()
	} else {
		// A store that is down is asked less and less often, down to once per lease.
		cl.state = stateLeaveDue
		cl.failures++
		longest := max(int64(cl.ttl), int64(time.Second))
		pause, _ := c.options.Backoff.pauseAfter(int(cl.failures), unavailable(context.Background(), err))
		cl.retryAt = now + min(int64(pause)<<min(cl.failures/8, 6), longest)
	}
	cl.planLocked(now)
}

// mayBeInLine reports whether the store can have the claim.
func (cl *claim) mayBeInLine() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.mayBeInLineLocked()
}

func (cl *claim) mayBeInLineLocked() bool { return cl.leaseEnd > 0 || cl.uncertain }

// giveUp reports that nothing is left to do for a call that gives up, because the claim leaves in
// the background, or the store cannot have it. Otherwise the call sends the Leave, if it has time.
func (cl *claim) giveUp(inBackground bool) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case cl.state == stateLeaveDue, cl.state == stateLeaving,
		cl.state == stateNew && !cl.uncertain,
		cl.state == stateEnded && (cl.named || !cl.mayBeInLineLocked()):
		return true
	case inBackground:
		cl.leaveInBackgroundLocked(driver.Exit{})
	}
	return inBackground
}
