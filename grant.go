package fencelock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// terms are what a lease was taken with, beyond the ordinary.
type terms struct {
	maxHold  int64 // when MaxHold ends the grant; never without
	minHold  time.Duration
	progress *progress // nil without Progress
	traced   string    // of Options.Trace
}

// termsOf returns the terms of a grant to the call a at time now, or nil.
func termsOf(a *acquisition, now int64) *terms {
	if a.maxHold <= 0 && a.minHold <= 0 && a.progress <= 0 && a.trace == "" {
		return nil
	}
	t := &terms{maxHold: never, minHold: a.minHold, traced: a.trace}
	if a.maxHold > 0 && int64(a.maxHold) < never-now {
		t.maxHold = now + int64(a.maxHold)
	}
	if a.progress > 0 {
		t.progress = &progress{limit: int64(a.progress)}
		t.progress.last.Store(now)
	}
	return t
}

// endAt is when MaxHold ends the grant.
func (t *terms) endAt() int64 {
	if t == nil {
		return never
	}
	return t.maxHold
}

// bounded reports whether there is a bound that only this process keeps.
func (t *terms) bounded() bool {
	return t != nil && (t.maxHold != never || t.minHold > 0 || t.progress != nil)
}

// trace is what Options.Trace returned for the call.
func (t *terms) trace() string {
	if t == nil {
		return ""
	}
	return t.traced
}

// event is an event of the grant of l. The mutex of the claim is held.
func (l *Lease) event() Event {
	cl := l.claim
	e := Event{Context: l.ctx.parent, Key: cl.key, Token: l.token, Owner: cl.readRare().owner}
	e.Note, _, _ = splitNote(cl.readRare().note)
	e.Kind, e.Permits = kindOf(int64(cl.capacity), int64(cl.weight))
	return e
}

// endHoldLocked notes that the grant of l is over: its claim has no holder.
func (l *Lease) endHoldLocked() {
	l.claim.holder = nil
	if w := l.claim.readRare().watch; w != nil {
		w.stop()
	}
}

// held reports whether the grant that l has or shares has not ended.
func (l *Lease) held() bool {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	return l.heldLocked()
}

func (l *Lease) heldLocked() bool { return l.claim.holder == l.root() }

// grantTo gives the claim to the call a. The outcome is gone if the claim was lost meanwhile,
// refused if the Client is closed, and retry if the lease must be renewed first: less than two
// thirds of it are left, or it is not of its full length yet.
func (cl *claim) grantTo(a *acquisition) step {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := cl.c.clock.Now()
	switch {
	case !cl.c.life.open(): // Close may have ended all grants already
		return refuse(ErrClosed)
	case cl.state != stateHeld:
		return step{outcome: outcomeGone}
	case cl.deadline.Load()-now < 2*believed(cl.countedLocked(cl.ttl))/3 || a.short:
		return step{outcome: outcomeRetry}
	}
	return step{lease: cl.grantLocked(a, now, false)}
}

// grantLocked gives the claim, which is held, to the call a.
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
	if events := &cl.c.events; events.on != nil {
		e := l.event()
		e.Wait, e.Waited, e.Handoff, e.HeldBy = a.waitNumber, time.Duration(now-a.start), handoff, a.inTheWay
		events.send(EventAcquired, e)
	}
	return l
}

// begin prepares l for a caller under ctx.
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

// endGrantLocked ends the grant of l, and all leases on it, with cause.
func (cl *claim) endGrantLocked(l *Lease, cause error) {
	l.ctx.end(cause)
	if l.shared != nil {
		l.shared.cancel(cause)
	}
	l.sendEnd(EventLost, cl.c.clock.Now(), cause)
	l.endHoldLocked()
	cl.c.life.endGrant()
}

// sendEnd reports that the grant of l has ended at time now: EventReleased or EventLost.
// The mutex of the claim is held.
func (l *Lease) sendEnd(t EventType, now int64, err error) {
	c := l.claim.c
	if c.events.on == nil {
		return
	}
	e := l.event()
	e.Time = time.Now().Add(time.Duration(now - c.clock.Now())) // the store's answer took time
	e.Held, e.Err = time.Duration(now-l.at), err
	var loss *lossError
	if errors.As(err, &loss) {
		e.Reason = loss.detail
	}
	c.events.send(t, e)
}

// sendRenewed reports that the lease was renewed when margin of it was left.
func (l *Lease) sendRenewed(now, margin int64) {
	events := &l.claim.c.events
	if events.on == nil {
		return
	}
	e := l.event()
	e.Left, e.Margin = time.Duration(l.claim.deadline.Load()-now), time.Duration(margin)
	events.send(EventRenewed, e)
}

// sendAtRisk reports how much of the lease is left. The mutex of the claim is held.
func (l *Lease) sendAtRisk(now int64, err error) {
	events := &l.claim.c.events
	if events.on == nil {
		return
	}
	e := l.event()
	e.Left, e.Err = time.Duration(l.claim.deadline.Load()-now), err
	events.send(EventAtRisk, e)
}

// exitLocked is how the claim leaves the line at time now, when the grant of l has ended.
func (cl *claim) exitLocked(l *Lease, now int64) driver.Exit {
	var e driver.Exit
	if l.terms == nil || l.terms.minHold <= 0 {
		return e
	}
	if left := l.terms.minHold - time.Duration(now-l.at); left > 0 {
		e.Linger = max(left, cl.c.info.MinTTL)
	}
	return e
}
