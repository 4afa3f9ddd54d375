package fencelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/driverutil"
)

func (l *Lease) held() bool {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	return l.heldLocked()
}

func (l *Lease) heldLocked() bool { return l.claim.holder == l.root() }

// grantTo gives the claim to the call a. The outcome is gone if the claim was lost meanwhile,
// refused if the Client is closed, and retry if the lease must be renewed first: less than two
// thirds of it are left, or it is not of its full length yet. A claim under notice is not renewed.
func (cl *claim) grantTo(a *acquisition, now int64) step {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case !cl.c.life.open(): // Close may have ended all grants already
		return refuse(ErrClosed)
	case cl.state != stateHeld:
		return step{outcome: outcomeGone}
	case cl.readRare().notice == nil &&
		(cl.deadline.Load()-now < 2*believed(cl.countedLocked(cl.ttl))/3 || a.short):
		return step{outcome: outcomeRetry}
	}
	return step{lease: cl.grantLocked(a, now, false)}
}

func (cl *claim) grantLocked(a *acquisition, now int64, handoff bool) *Lease {
	if cl.used == 0 {
		cl.turnStart = now
	}
	l := &Lease{claim: cl, token: fence.Token(cl.token + int64(cl.used)), at: now, terms: termsOf(a, now)}
	l.begin(a.ctx)
	cl.used++
	cl.holder, l.open = l, 1
	cl.c.life.grants.Add(1)
	if l.terms.bounded() {
		cl.planLocked(now)
	}
	l.send(EventAcquired, func(e *Event) {
		e.Wait, e.Took, e.Handoff, e.HeldBy = a.waitNumber, time.Duration(now-a.start), handoff, a.inTheWay
	})
	if cl.readRare().notice != nil { // given before the call had the grant
		l.revokeLocked(now)
	}
	return l
}

func (l *Lease) begin(ctx context.Context) {
	l.releasing.Add(1)
	l.ctx.lease, l.ctx.outer, l.ctx.parent = l, innermostHold(ctx), ctx
}

// shareLocked returns a lease on the grant of l for a caller under ctx.
func (l *Lease) shareLocked(ctx context.Context) *Lease {
	if l.shared == nil {
		l.shared = &builtCtx{}
		l.shared.Context, l.shared.cancel = context.WithCancelCause(context.Background())
	}
	l.open++
	share := &Lease{claim: l.claim, parent: l, token: l.token, at: l.at, terms: l.terms}
	share.begin(ctx)
	context.AfterFunc(l.shared, func() { _ = share.ended() })
	return share
}

// shareGrant returns a new lease on the grant of held, or nil if that is over.
func (a *acquisition) shareGrant(held *Lease) (*Lease, error) {
	cl := held.claim
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case !held.heldLocked() || cl.lapseLocked(a.c.clock.Now()):
		return nil, nil
	case a.capacity != int64(cl.capacity):
		return nil, driverutil.CheckKind(a.capacity, int64(cl.capacity))
	case !a.reentrant || a.weight > int64(cl.weight):
		return nil, fmt.Errorf("this context already holds the key: %w", ErrDeadlock)
	case held.detaches:
		return nil, fmt.Errorf("the lease of %s is not shared any more: %w", printable(a.key), ErrDetached)
	case a.claimID != "" && a.claimID != cl.id:
		return nil, invalid("the lease of %s is shared, and its claim has another ClaimID", printable(a.key))
	case a.ttl > 0 || a.noRenewal || a.maxHold > 0 || a.minHold > 0 || a.progress > 0 || a.lockDelay > 0:
		return nil, invalid("the lease of %s is shared: TTL, NoRenewal, MaxHold, MinHold, Progress "+
			"and LockDelay belong to the outer call", printable(a.key))
	}
	return held.shareLocked(a.ctx), nil
}

// endGrantLocked ends the grant of l, and all leases on it, with cause.
func (cl *claim) endGrantLocked(l *Lease, cause error) {
	l.ctx.end(cause)
	if l.shared != nil {
		l.shared.cancel(cause)
	}
	l.sendEnd(EventLost, cl.c.clock.Now(), cause)
	cl.holder = nil
	cl.c.life.endGrant()
}

// exitLocked returns how the claim leaves the line at time now, when the grant of l has ended.
func (cl *claim) exitLocked(l *Lease, now int64) driver.Exit {
	var e driver.Exit
	if left := l.terms.minHold - time.Duration(now-l.at); l.terms.minHold > 0 && left > 0 {
		e.Linger = max(left, cl.c.info.MinTTL)
	}
	return e
}

// dropMinHold lets the key be free as soon as the lease is released.
func (l *Lease) dropMinHold() {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	if l.terms.minHold > 0 {
		l.terms.minHold = 0
	}
}

// resume has the claim of l, whose holder ticked after it was stalled, renewed at once.
func (cl *claim) resume(l *Lease) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := cl.c.clock.Now()
	if !l.heldLocked() || cl.lapseLocked(now) || !l.terms.progress.Stalled() || cl.stalledLocked(now) {
		return
	}
	l.terms.progress.End()
	cl.atRisk = now >= cl.riskAtLocked()
	cl.retryAt = now
	cl.planLocked(now)
}

// Revoked returns a channel that is closed when the holder hears of a Break with a Notice: at once
// if the backend pushes or the Break was of this Client, else with the next renewal. The holder
// should finish its work and release the lease before Lease.Deadline, which the notice sets. Then the
// lease ends with ErrBroken. Its claim is not handed on inside its process. A renewal changes neither.
//
// It costs no round trip. A lease with NoRenewal hears only from a backend that pushes, and by Renew.
// The end of the lease does not close the channel, so wait for Context().Done(), too. All leases
// that share a grant share the channel.
func (l *Lease) Revoked() <-chan struct{} {
	l = l.root()
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	if l.revoked == nil {
		l.revoked = make(chan struct{})
	}
	return l.revoked
}

// Revocation returns the reason and the end of the notice that has closed Revoked. The end is zero
// if there was none. It costs no round trip.
func (l *Lease) Revocation() (reason string, end time.Time) {
	cl := l.claim
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if l = l.root(); !l.wasRevoked {
		return "", time.Time{}
	}
	n := cl.rare.notice
	return n.reason, cl.c.clock.Wall(n.end)
}

// revokeLocked tells the holder, which has the grant, of the notice of its claim.
func (l *Lease) revokeLocked(now int64) {
	if l.revoked == nil {
		l.revoked = make(chan struct{})
	}
	l.wasRevoked = true
	close(l.revoked)
	n := l.claim.rare.notice
	l.send(EventRevoked, func(e *Event) { e.Reason, e.Left = n.reason, time.Duration(n.end-now) })
}

// handOn gives the claim, which has no holder, to the next goroutine of its queue, or says how it
// leaves. l is the lease whose grant has just ended, or nil after a Reserve. Its release is reported
// before the next grant. The mutex of the queue is held.
func (cl *claim) handOn(q *localQueue, l *Lease, now int64) handOffOutcome {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case q.keepsLocked(cl, now):
		if l != nil {
			l.sendEnd(EventReleased, now, nil)
		}
		q.passLocked(cl, now)
		return handedOff
	case l == nil:
		cl.leaveInBackgroundLocked(driver.Exit{})
	case cl.others == othersInFront:
		return nextAfterLeave
	}
	return nobodyWaits
}

// reserved notes the result of a Reserve of span tokens, sent at time sent when used tokens were
// given. parked reports that the tokens ran out meanwhile. The mutex of the queue is held.
func (cl *claim) reserved(done bool, span, used int32, sent int64, parked bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if !done {
		cl.others = max(cl.others, othersBehind)
		return
	}
	cl.span, cl.turnStart = span, sent
	most := maxReserve * int32(cl.c.options.HandOff)
	cl.usedSoon = min(2*(cl.used-used), most)
	if parked { // so the pace is not known
		cl.usedSoon = most
	}
}

// beginRelease ends the lease here. If its grant ends with it, last is true, and the claim
// stays held and has no holder until giveBack. Otherwise err is the result of Release.
func (l *Lease) beginRelease(now int64, mark string) (exit driver.Exit, last bool, err error) {
	held, cl := l.root(), l.claim
	cl.mu.Lock()
	defer cl.mu.Unlock()
	held.open--
	if l.ended() == nil {
		cl.lapseLocked(now)
	}
	if lost := l.ended(); lost != nil {
		if held.open == 0 && !cl.staysClosedLocked() {
			cl.leaveNowLocked(now) // every holder has seen the loss, so the rest of the lease serves no purpose
		}
		return exit, false, wrap("release", cl.key, lost)
	}
	l.ctx.end(releasedError{l})
	if mark != "" {
		cl.writeRare().exit.Mark = mark
	}
	if held.open > 0 { // others still share the grant
		if mark != "" {
			err = wrap(opOnce, cl.key,
				invalid("f shared the lease and has not released it; the slot is noted when it does"))
		}
		return exit, false, err
	}
	exit = cl.exitLocked(held, now)
	exit.Mark = cl.readRare().exit.Mark
	cl.holder = nil
	return exit, true, nil
}

// endRelease reports the end of the grant of l, at time now, after the Leave of its claim.
func (l *Lease) endRelease(now int64, err error) {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	end := EventReleased
	if errors.Is(err, ErrLost) {
		end = EventLost
	}
	l.sendEnd(end, now, err)
}

// beginDetach returns the handle of the lease, or says why it can have none. Until endDetach the
// grant is not shared: a share would outlive the Detach, with no claim behind it. outlives reports
// that the claim lasts without this process as it is, and has most of its TTL left. A named claim
// does, where it has a lease of its own.
func (l *Lease) beginDetach() (h handle, outlives bool, err error) {
	held, cl := l.root(), l.claim
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case l.ended() != nil:
		return h, false, l.ended()
	case held.open > 1:
		return h, false, invalid("the lease is shared: release the other handles on it before")
	case held.detaches:
		return h, false, invalid("another Detach of the lease is under way")
	case l.terms.bounded() || cl.readRare().lockDelay > 0:
		return h, false, invalid("MaxHold, MinHold, Progress and LockDelay end with the process of the " +
			"holder; leave them out")
	}
	held.detaches = true
	outlives = cl.named && !cl.c.info.SharedLease && cl.c.clock.Now()-cl.sent < int64(cl.ttl/10)
	return handle{ticket: cl.ticketLocked(), token: l.token, uncertain: cl.mayEnterLocked()}, outlives, nil
}

// endDetach lets the grant be shared again, if it is not over.
func (l *Lease) endDetach() {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	l.detaches = false
}

// endDetached ends the lease here, after the store has detached its claim.
func (l *Lease) endDetached() error {
	if !l.released.CompareAndSwap(false, true) {
		return invalid("the lease was released meanwhile") // the Leave follows the Detach
	}
	defer l.releasing.Done()
	held, cl := l.root(), l.claim
	now := cl.c.clock.Now()
	if q := cl.queue; q != nil {
		defer q.claimLost(cl) // the next goroutine of this process joins the line
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if lost := l.ended(); lost != nil {
		l.releaseErr = wrap("release", cl.key, lost)
		return lost
	}
	l.ctx.end(fmt.Errorf("%w: %s", ErrDetached, l))
	held.open = 0
	cl.holder = nil
	cl.state = stateEnded
	cl.planLocked(now)
	held.sendEnd(EventReleased, now, ErrDetached)
	cl.c.life.endGrant()
	return nil
}

// close ends the lease of the claim and takes the claim out of the line.
func (cl *claim) close() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := cl.c.clock.Now()
	if l := cl.holder; l != nil {
		exit := cl.exitLocked(l, now)
		if cl.c.info.Linger {
			exit.Linger = max(exit.Linger, cl.readRare().lockDelay)
		}
		cl.endGrantLocked(l, cl.lossLocked(ErrClosed, ""))
		cl.leaveInBackgroundLocked(exit)
		return
	}
	if cl.staysClosedLocked() && cl.readRare().lost != nil && cl.state == stateLeaveDue {
		cl.state = stateEnded // it ends in the store, and the delay after the loss goes on there
		cl.planLocked(now)
		cl.c.life.endWork()
		return
	}
	cl.failures = 0 // Close has two seconds: a Leave is repeated as soon as after the first failure
	cl.leaveNowLocked(now)
}
