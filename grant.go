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

// grantTo gives the claim to the call a. The lease is nil if the claim was lost meanwhile.
func (cl *claim) grantTo(a *acquisition) (*Lease, error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case !cl.c.life.open(): // Close may have ended all grants already
		return nil, ErrClosed
	case cl.state != stateHeld:
		return nil, nil
	}
	return cl.grantLocked(a, a.clockRead, false), nil
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
	if a.maxHold > 0 && !a.fixed && int64(a.maxHold) < never-now {
		g.endAt = now + int64(a.maxHold)
		cl.endAt = g.endAt
		cl.planLocked(now)
	}
	hooks := &cl.c.hooks
	hooks.send(hooks.Acquired, Event{Key: cl.key, Token: g.token, Waited: time.Duration(now - a.start), Handoff: handoff})
	return g.addLeaseLocked(a.ctx, &first.lease)
}

// addLeaseLocked makes l a lease on the grant, for a caller under ctx.
func (g *grant) addLeaseLocked(ctx context.Context, l *Lease) *Lease {
	l.grant = g
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
	cl.closeGrantLocked(g)
}

// closeGrantLocked marks g as over.
func (cl *claim) closeGrantLocked(g *grant) {
	g.over = true
	cl.grant, cl.endAt = nil, never
	cl.c.life.endGrant()
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
