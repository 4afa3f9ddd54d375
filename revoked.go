package fencelock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/fence"
)

// Revocation is a request to release a lease (see Client.Revoke).
type Revocation struct {
	Owner  string // who asks
	Reason string
	Since  time.Time // by the store's clock
}

// Revoked returns a channel that is closed when a client asks for the lock by
// Client.Revoke. The holder should finish its work and release the lease before it is
// broken. The channel stays closed if the request is taken back. The end of the lease does
// not close it, so wait for Context().Done(), too.
//
// From the first call on, a goroutine looks for a request until there is one or the lease
// ends. It sends one request (see Client.Line) each second, or each third of the TTL if
// that is shorter. A lease without a call of Revoked costs neither, and its holder does not
// learn of requests. All handles that share a grant share the channel.
func (l *Lease) Revoked() <-chan struct{} {
	l, cl := l.root(), l.claim
	cl.mu.Lock()
	defer cl.mu.Unlock()
	w := cl.readRare().watch
	switch {
	case w != nil && w.lease == l:
	case !l.heldLocked():
		return nil // nobody can ask any more
	default:
		ctx, stop := context.WithCancel(context.Background())
		w = &revokeWatch{lease: l, stop: stop, asked: make(chan struct{})}
		cl.writeRare().watch = w
		cl.c.life.beginWork()
		go w.run(ctx, revokeKey(cl.key, fence.Token(cl.token)), cl.ttl)
	}
	return w.asked
}

// Revocation returns the request that has closed Revoked, or nil. It costs no round trip.
func (l *Lease) Revocation() *Revocation {
	cl := l.claim
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if w := cl.readRare().watch; w != nil && w.lease == l.root() {
		return w.by
	}
	return nil
}

// revokeWatch looks for a request to release a grant. The mutex of the claim guards by.
type revokeWatch struct {
	lease *Lease             // has the grant
	stop  context.CancelFunc // called when the grant is over
	asked chan struct{}
	by    *Revocation // set before asked is closed
}

// run looks at the line of key until there is a request, or the grant is over.
func (w *revokeWatch) run(ctx context.Context, key string, ttl time.Duration) {
	c := w.lease.claim.c
	defer c.life.endWork()
	defer w.stop()
	tick := time.NewTicker(lookEvery(ttl))
	defer tick.Stop()
	for {
		call := c.life.renewing.Call(ctx, c.clock.Now(), ttl/3)
		found, err := c.backend.Line(call, key)
		call.End()
		if err == nil && len(found.Claims) > 0 {
			line := lineOf(&found)
			w.found(&line.Claims()[0])
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// found tells the holder of a request. It is one for the claim, which is not handed on from now on.
func (w *revokeWatch) found(request *Standing) {
	l, cl := w.lease, w.lease.claim
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if !l.heldLocked() {
		return
	}
	w.by = &Revocation{Owner: request.Owner, Reason: request.Note, Since: request.Since}
	close(w.asked)
	if events := &cl.c.events; events.on != nil {
		e := l.event()
		e.Revoked = w.by
		events.send(EventRevoked, e)
	}
}

// revokedLocked reports whether a holder of the claim was asked to release it.
func (cl *claim) revokedLocked() bool {
	w := cl.readRare().watch
	return w != nil && w.by != nil
}
