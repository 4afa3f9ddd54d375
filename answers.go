package fencelock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/callctx"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/driverutil"
)

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

// entered notes t, the store's response to d: the claim is in line.
func (cl *claim) entered(d *driver.Claim, t *driver.Ticket, sent int64) step {
	now := cl.c.clock.Now()
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

// enterFailed notes err, the error of an Enter.
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
	reason, operator := goneDetail(err)
	cl.state = stateEnded
	cl.writeRare().lost = cl.loss(ErrBroken, 0, reason)
	cl.rare.lost.by = lossOf(operator)
	return step{outcome: outcomeGone}
}

// notOurs ends a claim whose ID is that of another wish: nothing is sent for that ID any more.
func (cl *claim) notOurs() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.state = stateEnded
}

// refusedBusy notes that an Enter without waiting was refused.
func (cl *claim) refusedBusy(busy *driver.BusyError) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	said := &cl.writeRare().said
	said.blocker, said.ahead, said.lastErr = busy, busy.Ahead, nil
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

// awaited notes the result of an Await.
func (cl *claim) awaited(got *driver.Ticket, err error) step {
	cl.mu.Lock()
	defer cl.unlock()
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
		reason, operator := goneDetail(err)
		cl.goneLocked(reason, max(lossOf(operator), lossByReading))
	default:
		return retry(err)
	}
	return step{outcome: outcomeGone}
}

// awaitedLocked notes got, the ticket that an Await returned.
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
	_, noticed := noticeOf(err)
	switch {
	case cl.state != stateHeld:
		return step{outcome: outcomeGone}
	case err != nil && !noticed:
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

// waitAgain makes a claim that giveUp has found granted wait for the response that says so.
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

// loseLocked ends a claim that did not leave by itself. Its holder learns of the loss before
// this process can grant the key to anybody else. The caller ends with claim.unlock.
func (cl *claim) loseLocked(lost *lossError) {
	if cl.state != stateWaiting && cl.state != stateHeld {
		return
	}
	now := cl.c.clock.Now()
	cl.state = stateEnded
	cl.writeRare().lost = lost
	if interrupt := cl.rare.interrupt; interrupt != nil {
		interrupt()
	}
	l := cl.holder
	switch {
	case l == nil:
		// The call that waits for this claim enters again or gives up. Either way it sends
		// the Leave.
		cl.planLocked(now)
		return
	case cl.leaseEnd == 0 || cl.named:
		cl.endGrantLocked(l, lost)
		cl.planLocked(now)
	default:
		// The lease runs out in the store by itself. Until then the claim stays in line,
		// because its holder may not have noticed. The Leave is needed where claims share one
		// lease, which the other claims keep alive.
		cl.endGrantLocked(l, lost)
		cl.leaveLaterLocked(max(cl.leaseEnd, now), driver.Exit{})
	}
	cl.wakeQueue = cl.queue != nil
}

// lossLocked describes the loss of the claim by its present holder.
func (cl *claim) lossLocked(kind error, detail string) *lossError {
	return cl.loss(kind, cl.holderTokenLocked(), detail)
}

// loss describes the loss of a grant.
func (cl *claim) loss(kind error, token fence.Token, detail string) *lossError {
	return &lossError{kind: kind, key: cl.key, token: token, detail: detail}
}

// lapseLocked ends the claim if its deadline or its MaxHold has passed, and reports whether
// it has.
func (cl *claim) lapseLocked(now int64) bool {
	deadline, endAt := cl.deadline.Load(), cl.endAtLocked()
	switch {
	case now < min(deadline, endAt):
		return false
	case endAt <= deadline:
		cl.loseLocked(cl.lossLocked(ErrMaxHold, ""))
	case cl.noticeEndLocked() <= deadline:
		cl.loseLocked(cl.brokenLocked(cl.rare.notice.reason, lossByOperator))
	case cl.stalledLocked(deadline):
		cl.loseLocked(cl.lossLocked(ErrStalled, cl.progressLocked().detail()))
	default:
		cl.loseLocked(cl.lossLocked(ErrExpired, ""))
	}
	return true
}

// lapse ends the claim of l as lapseLocked does, unless the lease has ended.
func (cl *claim) lapse(l *Lease, now int64) {
	cl.mu.Lock()
	defer cl.unlock()
	if l.ended() == nil {
		cl.lapseLocked(now)
	}
}

// goneLocked ends a claim that the store no longer has.
func (cl *claim) goneLocked(reason string, by lossBy) {
	if cl.state != stateWaiting && cl.state != stateHeld {
		return
	}
	cl.leaseEnd = 0 // nothing is left in the store
	cl.loseLocked(cl.brokenLocked(reason, by))
}

// brokenLocked describes the loss of a claim that was broken, or that the store does not have.
func (cl *claim) brokenLocked(reason string, by lossBy) *lossError {
	if reason == "" && by == lossByOperator {
		reason = "an operator broke it"
	} else if reason == "" {
		reason = "it was no longer in the store"
	}
	lost := cl.lossLocked(ErrBroken, reason)
	lost.by = by
	return lost
}

// riskLocked reports once that the lease may end before it is renewed.
func (cl *claim) riskLocked(now int64, err error) {
	if cl.atRisk {
		return
	}
	cl.atRisk = true
	if cl.holder != nil {
		cl.holder.sendAtRisk(now, err)
	}
}

// claimBroken is called by a backend that hears of a claim's end, or of the notice of one.
func (c *Client) claimBroken(id string, gone driver.GoneError) {
	for _, cl := range c.schedule.Find(func(cl *claim) bool { return cl.id == id }) {
		cl.mu.Lock()
		cl.heardLocked(gone, c.clock.Now())
		cl.unlock()
	}
}

// brokenHere notes a Break of the own Client, sent at time sent, if token is in the span of the claim.
func (cl *claim) brokenHere(token fence.Token, gone driver.GoneError, sent int64) {
	cl.mu.Lock()
	defer cl.unlock()
	if cl.hasToken(token) {
		cl.heardLocked(gone, sent)
	}
}

// heardLocked notes that the claim was broken, or given notice, at time at.
func (cl *claim) heardLocked(gone driver.GoneError, at int64) {
	if gone.Left > 0 {
		cl.hintNoticeLocked(gone, at, cl.c.clock.Now())
	} else {
		cl.goneLocked(gone.Reason, lossOf(gone.Broken))
	}
}

// renewalAnswered notes the result of a scheduled renewal.
func (cl *claim) renewalAnswered(ttl time.Duration, sent, now int64, err error) {
	cl.mu.Lock()
	defer cl.unlock()
	cl.renewing = false
	if done := cl.readRare().renewalDone; done != nil {
		close(done)
		cl.rare.renewalDone = nil
	}
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
	defer cl.unlock()
	if l.ended() == nil {
		cl.renewedLocked(ttl, sent, now, err)
	}
}

// renewedLocked notes the result of any renewal.
func (cl *claim) renewedLocked(ttl time.Duration, sent, now int64, err error) {
	if cl.state != stateWaiting && cl.state != stateHeld {
		return
	}
	if cl.lapseLocked(now) {
		// The holder may have seen the end of the lease. A late success does not undo it.
		return
	}
	if driver.Gone(err) {
		reason, operator := goneDetail(err)
		cl.goneLocked(reason, lossOf(operator))
		return
	}
	if gone, noticed := noticeOf(err); noticed {
		cl.noticedLocked(gone, ttl, sent, now)
		return
	}
	margin := cl.deadline.Load() - now
	if err == nil && cl.confirmLeaseLocked(sent, now, ttl) {
		cl.atRisk = cl.stalledLocked(now)
		if cl.holder != nil {
			cl.holder.sendRenewed(time.Duration(margin))
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

// awaitRenewal waits until no renewal of the claim is under way, and at most until the given
// time. So no renewal is sent after Release has returned.
func (cl *claim) awaitRenewal(until int64) {
	cl.mu.Lock()
	if !cl.renewing {
		cl.mu.Unlock()
		return
	}
	rare := cl.writeRare()
	if rare.renewalDone == nil {
		rare.renewalDone = make(chan struct{})
	}
	done := rare.renewalDone
	cl.mu.Unlock()
	t := clock.NewTimer(time.Duration(until - cl.c.clock.Now()))
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
