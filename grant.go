package fencelock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// grant is the holding of a key, from the moment it is given to the moment it is released
// or lost. Several leases may share it, by re-entrancy. The mutex of its claim guards it.
// claim, token, at and endAt never change.
type grant struct {
	claim  *claim
	token  fence.Token
	at     int64
	endAt  int64  // MaxHold
	leases *Lease // a list of those not released
	open   int32  // leases whose Release was not called
	over   bool
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

// held reports whether the grant has not ended.
func (g *grant) held() bool {
	g.claim.mu.Lock()
	defer g.claim.mu.Unlock()
	return !g.over
}

// grantTo gives the claim to the call a. The lease is nil if the claim was lost meanwhile. The
// error is errOldLease if less than two thirds of the lease are left, or if the lease is not
// of its full length yet.
func (cl *claim) grantTo(a *acquisition) (*Lease, error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := cl.c.clock.now()
	switch {
	case !cl.c.life.open(): // Close may have ended all grants already
		return nil, finalError{ErrClosed}
	case cl.state != stateHeld:
		return nil, nil
	case cl.deadline.Load()-now < 2*believed(cl.ttl)/3 || a.fixedTTL > 0:
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
	*g = grant{claim: cl, token: fence.Token(cl.token + int64(cl.used)), at: now, endAt: never}
	cl.used++
	cl.grant = g
	cl.c.life.grants.Add(1)
	if a.minHold > 0 {
		cl.writeRare().minHold = a.minHold
	}
	if a.maxHold > 0 && int64(a.maxHold) < never-now {
		g.endAt = now + int64(a.maxHold)
		cl.planLocked(now)
	}
	hooks := &cl.c.hooks
	if hooks.Acquired != nil {
		hooks.send(hooks.Acquired, Event{
			Key: cl.key, Token: g.token, Waited: time.Duration(now - a.start), Handoff: handoff,
		})
	}
	return g.addLeaseLocked(a.ctx, &first.lease)
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
	hooks := &cl.c.hooks
	hooks.send(hooks.Lost, Event{Key: cl.key, Token: g.token, Err: cause, Held: time.Duration(cl.c.clock.now() - g.at)})
	g.over, cl.grant = true, nil
	cl.c.life.endGrant()
}

// sendReleased reports the release of g at time now to the hooks.
func (g *grant) sendReleased(now int64, err error) {
	hooks := &g.claim.c.hooks
	if hooks.Released != nil {
		hooks.send(hooks.Released, Event{Key: g.claim.key, Token: g.token, Held: time.Duration(now - g.at), Err: err})
	}
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
