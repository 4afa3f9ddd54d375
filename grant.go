package fencelock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// grant is the holding of a key, from the moment it is given to the moment it is released
// or lost. Several leases may share it, by re-entrancy. The mutex of its claim guards it.
// claim, first, token, at, endAt and progress never change.
type grant struct {
	claim    *claim
	first    *Lease // of the call that got the grant
	token    fence.Token
	at       int64
	endAt    int64     // MaxHold
	progress *progress // nil without Progress
	leases   *Lease    // a list of those not released
	open     int32     // leases whose Release was not called
	over     bool
	detaches bool // a Detach is under way, so nobody may share the grant
}

// event is an event of g. The mutex of the claim is held.
func (g *grant) event() Event {
	cl := g.claim
	e := Event{Context: g.first.ctx.parent, Key: cl.key, Token: g.token, Owner: cl.readRare().owner}
	e.Note, _, _ = splitNote(cl.readRare().note)
	e.Kind, e.Permits = kindOf(int64(cl.capacity), int64(cl.weight))
	return e
}

// add appends l to the list.
func (g *grant) add(l *Lease) {
	end := &g.leases
	for *end != nil {
		end = &(*end).next
	}
	*end = l
	g.open++
}

// remove takes l out of the list.
func (g *grant) remove(l *Lease) {
	at := &g.leases
	for *at != nil && *at != l {
		at = &(*at).next
	}
	if *at != nil {
		*at, l.next = l.next, nil
	}
}

// endLocked notes that g is over: its claim has no holder.
func (g *grant) endLocked() {
	g.over, g.claim.grant = true, nil
	if w := g.claim.readRare().watch; w != nil {
		w.stop()
	}
}

// held reports whether the grant has not ended.
func (g *grant) held() bool {
	g.claim.mu.Lock()
	defer g.claim.mu.Unlock()
	return !g.over
}

// grantTo gives the claim to the call a. The lease is nil if the claim was lost meanwhile. The
// error is final, with ErrClosed, if the Client is closed. It is errOldLease if less than two
// thirds of the lease are left, or if the lease is not of its full length yet.
func (cl *claim) grantTo(a *acquisition) (*Lease, error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := cl.c.clock.Now()
	switch {
	case !cl.c.life.open(): // Close may have ended all grants already
		return nil, finalError{ErrClosed}
	case cl.state != stateHeld:
		return nil, nil
	case cl.deadline.Load()-now < 2*believed(cl.countedLocked(cl.ttl))/3 || a.short:
		return nil, errOldLease
	}
	return cl.grantLocked(a, now, false), nil
}

// grantLocked gives the claim, which is held, to the call a.
func (cl *claim) grantLocked(a *acquisition, now int64, handoff bool) *Lease {
	if cl.used == 0 {
		cl.turnStart = now
	}
	// A grant and its first lease are one allocation.
	first := &struct {
		grant
		lease Lease
	}{}
	g := &first.grant
	*g = grant{claim: cl, first: &first.lease, token: fence.Token(cl.token + int64(cl.used)), at: now, endAt: never}
	cl.used++
	cl.grant = g
	cl.c.life.grants.Add(1)
	if a.minHold > 0 {
		cl.writeRare().minHold = a.minHold
	}
	if a.trace != cl.readRare().trace {
		cl.writeRare().trace = a.trace
	}
	if a.maxHold > 0 && int64(a.maxHold) < never-now {
		g.endAt = now + int64(a.maxHold)
	}
	if a.progress > 0 {
		g.progress = &progress{limit: int64(a.progress)}
		g.progress.last.Store(now)
	}
	if g.endAt != never || g.progress != nil {
		cl.planLocked(now)
	}
	l := g.addLeaseLocked(a.ctx, &first.lease)
	if events := &cl.c.events; events.on != nil {
		e := g.event()
		e.Wait, e.Waited, e.Handoff, e.HeldBy = a.waitNumber, time.Duration(now-a.start), handoff, a.inTheWay
		events.send(EventAcquired, e)
	}
	return l
}

// addLeaseLocked makes l a lease on the grant, for a caller under ctx.
func (g *grant) addLeaseLocked(ctx context.Context, l *Lease) *Lease {
	l.grant = g
	l.releasing.Add(1)
	l.ctx.lease, l.ctx.outer, l.ctx.parent = l, innermostHold(ctx), ctx
	g.add(l)
	return l
}

// endGrantLocked ends every lease on g with cause.
func (cl *claim) endGrantLocked(g *grant, cause error) {
	for l := g.leases; l != nil; l = l.next {
		l.endLocked(cause)
	}
	g.leases = nil
	g.sendEnd(EventLost, cl.c.clock.Now(), cause)
	g.endLocked()
	cl.c.life.endGrant()
}

// sendEnd reports that g has ended at time now: EventReleased or EventLost.
// The mutex of the claim is held.
func (g *grant) sendEnd(t EventType, now int64, err error) {
	c := g.claim.c
	if c.events.on == nil {
		return
	}
	e := g.event()
	e.Time = time.Now().Add(time.Duration(now - c.clock.Now())) // the store's answer took time
	e.Held, e.Err = time.Duration(now-g.at), err
	var loss *lossError
	if errors.As(err, &loss) {
		e.Reason = loss.detail
	}
	c.events.send(t, e)
}

// sendRenewed reports that the lease was renewed when margin of it was left.
func (g *grant) sendRenewed(now, margin int64) {
	events := &g.claim.c.events
	if events.on == nil {
		return
	}
	e := g.event()
	e.Left, e.Margin = time.Duration(g.claim.deadline.Load()-now), time.Duration(margin)
	events.send(EventRenewed, e)
}

// sendAtRisk reports how much of the lease is left. The mutex of the claim is held.
func (g *grant) sendAtRisk(now int64, err error) {
	events := &g.claim.c.events
	if events.on == nil {
		return
	}
	e := g.event()
	e.Left, e.Err = time.Duration(g.claim.deadline.Load()-now), err
	events.send(EventAtRisk, e)
}

// exitLocked is how the claim leaves the line at time now, when g has ended.
func (cl *claim) exitLocked(g *grant, now int64) driver.Exit {
	var e driver.Exit
	minHold := cl.readRare().minHold
	if left := minHold - time.Duration(now-g.at); minHold > 0 && left > 0 {
		e.Linger = max(left, cl.c.info.MinTTL)
	}
	return e
}
