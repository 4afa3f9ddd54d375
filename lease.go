package fencelock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// grant is the holding of a key, from the moment it was given to the moment it is
// released or lost. Several leases may share it, by re-entrancy. Everything is
// guarded by the Client's mutex, but claim, token and endAt never change.
type grant struct {
	claim  *claim
	token  fence.Token
	at     int64
	endAt  int64  // MaxHold
	leases *Lease // not yet released, as a list
	open   int32  // leases that Release was not called for
	over   bool
}

// add puts l behind the others.
func (g *grant) add(l *Lease) {
	at := &g.leases
	for *at != nil {
		at = &(*at).next
	}
	*at = l
	g.open++
}

// drop takes l out of the list.
func (g *grant) drop(l *Lease) {
	at := &g.leases
	for *at != nil && *at != l {
		at = &(*at).next
	}
	if *at != nil {
		*at, l.next = l.next, nil
	}
}

// Lease is a lock that is held. All methods may be called from many goroutines at
// once. A Lease is made by the methods of Client and Semaphore.
type Lease struct {
	c   *Client
	g   *grant
	ctx leaseCtx

	cause    error // why it is over; set before over
	over     atomic.Bool
	orphaned bool // the context it was made from had ended before; guarded by ctx.mu

	// The rest is guarded by the Client's mutex, but what ending has may be read by who
	// saw done closed.
	releasing bool    // Release was called
	released  bool    // its result stands
	ending    *ending // nil if the result is, and nobody waited for it
	next      *Lease  // in the list of the grant
}

// ending is the result of a Release.
type ending struct {
	done chan struct{} // closed when err stands, if somebody waits for that
	err  error
}

// Held returns the lease for key that ctx carries, or nil. Lease.Context and what
// descends from it carry the lease until its grant is released; a lease that was
// lost is still returned, and its Err says why.
func Held(ctx context.Context, key string) *Lease {
	for x := holds(ctx); x != nil; x = x.outer {
		if l := x.lease; l.Key() == key && !errors.Is(l.Err(), ErrReleased) {
			return l
		}
	}
	return nil
}

// WithoutHolds returns a ctx that carries no leases, for a goroutine that must
// queue like a stranger: what its starter holds is then neither shared nor seen as
// a deadlock. It still ends when ctx does.
func WithoutHolds(ctx context.Context) context.Context {
	return context.WithValue(ctx, holdsKey{}, (*leaseCtx)(nil))
}

// grantTo gives cl, which is held, to a caller under ctx, now. c.mu is held.
func (c *Client) grantTo(ctx context.Context, r *request, cl *claim, now int64, handoff bool) *Lease {
	if cl.used == 0 {
		cl.since = now
	}
	// A grant and its first lease are one allocation.
	first := &struct {
		grant
		lease Lease
	}{}
	g := &first.grant
	*g = grant{claim: cl, token: fence.Token(cl.token + int64(cl.used)), at: now, endAt: never}
	if r.minHold > 0 {
		cl.gets().minHold = r.minHold
	}
	if r.maxHold > 0 && !r.fixed && int64(r.maxHold) < never-now {
		g.endAt = now + int64(r.maxHold)
	}
	cl.used++
	cl.grant = g
	c.live++
	if g.endAt != never {
		cl.endAt = g.endAt
		c.plan(cl, now)
	}
	if h := c.o.Hooks.Acquired; h != nil {
		c.emit(h, Event{Key: r.key, Token: g.token, Waited: time.Duration(now - r.start), Handoff: handoff})
	}
	return c.handle(ctx, g, &first.lease)
}

// handle makes l a lease on g. c.mu is held.
func (c *Client) handle(ctx context.Context, g *grant, l *Lease) *Lease {
	l.c, l.g = c, g
	l.ctx.lease, l.ctx.outer, l.ctx.parent = l, holds(ctx), ctx
	g.add(l)
	return l
}

// share returns a new lease on what ctx already holds, nil if ctx holds nothing of
// the key, or an error if the call would wait for itself. c.mu is held.
func (c *Client) share(ctx context.Context, r *request) (*Lease, error) {
	for x := holds(ctx); x != nil; x = x.outer {
		g := x.lease.g
		if x.lease.c != c || g.over || g.claim.key != r.key {
			continue
		}
		cl := g.claim
		if c.lapse(cl, c.clock.now()) {
			continue
		}
		switch {
		case r.capacity != int64(cl.capacity) && (r.capacity == driver.RW || cl.capacity == driver.RW):
			return nil, ErrKind
		case !r.reentrant || r.weight > int64(cl.weight):
			return nil, ErrDeadlock
		case r.innerTimes():
			return nil, invalid("the lease of %s is shared: TTL, FixedLease, MaxHold and MinHold belong to the outer call", printable(r.key))
		}
		return c.handle(ctx, g, &Lease{}), nil
	}
	return nil, nil
}

// endGrant ends every lease on g. c.mu is held.
func (c *Client) endGrant(g *grant, cause error) {
	if g.over {
		return
	}
	for l := g.leases; l != nil; l = l.next {
		l.end(cause)
	}
	g.leases = nil
	if h := c.o.Hooks.Lost; h != nil {
		c.emit(h, Event{Key: g.claim.key, Token: g.token, Err: cause, Held: time.Duration(c.clock.now() - g.at)})
	}
	c.close(g)
}

// close marks g as over. c.mu is held.
func (c *Client) close(g *grant) {
	g.over = true
	g.claim.grant = nil
	g.claim.endAt = never
	c.live--
	c.moved()
}

// end ends one lease. c.mu is held.
func (l *Lease) end(cause error) {
	if !l.over.Load() {
		l.ctx.end(cause)
	}
}

// exit is how g leaves the line at time now.
func (c *Client) exit(g *grant, now int64) driver.Exit {
	var e driver.Exit
	least := g.claim.has().minHold
	if left := least - time.Duration(now-g.at); least > 0 && left > 0 {
		e.Linger = max(left, c.info.MinTTL)
	}
	return e
}

// Context descends from the ctx of the call that took the lease, and ends with the
// lease: when it is released, and, at its deadline at the latest, when it is lost,
// even if the network is dead. context.Cause says why: ErrReleased, or ErrLost with
// one of ErrExpired, ErrBroken, ErrMaxHold, ErrClosed. It also ends when the
// caller's ctx does; the lease is still held then, and Err is nil.
func (l *Lease) Context() context.Context { return &l.ctx }

// Token returns the fencing token: larger than that of every earlier exclusive
// grant of this key, through whichever process. Leases that share a grant have the
// same token.
func (l *Lease) Token() fence.Token { return l.g.token }

// Key returns the name of the lock.
func (l *Lease) Key() string { return l.g.claim.key }

// Deadline returns when the lease ends unless it is renewed before. Renewal moves
// it. It is earlier than the end that the store keeps, by a hundredth of the lease
// and two milliseconds.
func (l *Lease) Deadline() time.Time {
	cl := l.g.claim
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.clock.wall(min(cl.deadline.Load(), cl.endAt))
}

// Err returns nil while the lease is held, and the cause of its end afterwards. It
// looks at the clock itself: the first call after a pause tells the truth, whether
// or not a timer has fired yet. It costs no round trip.
func (l *Lease) Err() error {
	if l.over.Load() {
		return l.cause
	}
	cl := l.g.claim
	now := l.c.clock.now()
	if now < min(cl.deadline.Load(), l.g.endAt) {
		return nil
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if !l.over.Load() {
		l.c.lapse(cl, now)
	}
	return l.cause
}

// Renew starts the lease again now, beside the automatic renewal. It costs one
// round trip. After an error other than ErrLost the lease is as it was: the error
// says only that nobody answered.
func (l *Lease) Renew(ctx context.Context) error {
	const op = "renew"
	if err := l.Err(); err != nil {
		return wrap(op, l.Key(), err)
	}
	c, cl := l.c, l.g.claim
	if cl.fixed {
		return wrap(op, l.Key(), invalid("a FixedLease is not renewed; use MaxHold instead"))
	}
	c.mu.Lock()
	if l.over.Load() {
		c.mu.Unlock()
		return wrap(op, l.Key(), l.cause)
	}
	t := c.ticket(cl)
	c.calls++
	c.mu.Unlock()
	sent := c.clock.now()
	call := c.callFor(ctx, sent, t.TTL/3)
	call.life = &c.keep // Shutdown lets what is held be renewed
	err := one(c.b.Renew(call, []driver.Ticket{t}))
	call.end()
	now := c.clock.now()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
	c.moved()
	if l.over.Load() {
		return wrap(op, l.Key(), l.cause)
	}
	if err == nil || driver.Gone(err) || driver.Ended(ctx) == nil {
		c.renewed(cl, t.TTL, sent, now, err)
	} // else ctx cut the call short, which says nothing of the store
	switch {
	case l.over.Load():
		return wrap(op, l.Key(), l.cause)
	case err != nil:
		return wrap(op, l.Key(), unavailable(ctx, err))
	}
	return nil
}

// Release ends the lease and lets the next one in. Its Context ends at once.
//
// It ignores the end of ctx, which only lends its values: a lock must be given back
// also by a call that was cancelled. It returns after at least one attempt, and
// after two seconds or the time left of the lease, whichever is shorter; if the
// store has not confirmed by then, the error is ErrUnavailable and the rest is done
// behind. ErrLost says that the lease had ended before, and why.
//
// It may be called again; every call returns the first one's result. It costs one
// round trip, or none if the lock passes to a goroutine of this Client.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx, "") }

func (l *Lease) release(ctx context.Context, mark driver.Mark) error {
	c, g := l.c, l.g
	now := c.clock.now()
	c.mu.Lock()
	if l.releasing {
		if l.ending == nil && !l.released {
			l.ending = &ending{done: make(chan struct{})}
		}
		e := l.ending
		c.mu.Unlock()
		var result error
		if e != nil {
			if e.done != nil {
				<-e.done
			}
			result = e.err
		}
		if mark != "" && result == nil {
			return wrap(opOnce, l.Key(), fmt.Errorf("%w by f, before the slot could be noted", ErrReleased))
		}
		return result
	}
	l.releasing = true
	g.open--
	cl := g.claim
	if !l.over.Load() {
		c.lapse(cl, now)
	}
	if l.over.Load() {
		if g.open == 0 && cl.state == leaving && !cl.exiting {
			// Its holders have seen the end: nobody is covered by its last seconds any
			// more, and they need not be waited for.
			cl.retryAt = min(cl.retryAt, now)
			c.plan(cl, now)
		}
		defer c.mu.Unlock()
		return l.settle(wrap("release", cl.key, l.cause))
	}
	l.end(releasedError{l})
	g.drop(l)
	if mark != "" {
		cl.gets().leave = mark
	}
	if g.leases != nil { // others still share the grant
		defer c.mu.Unlock()
		if mark != "" {
			return l.settle(wrap(opOnce, cl.key, invalid("f shared the lease and has not released it; the slot is noted when it does")))
		}
		return l.settle(nil)
	}
	exit := c.exit(g, now)
	exit.Mark = cl.has().leave
	c.close(g)
	held := time.Duration(now - g.at)
	var next *gate // whose turn comes after the Leave
	if w := cl.gate; w != nil && w.claim == cl {
		released := Event{Key: cl.key, Token: g.token, Held: held}
		if c.handOn(w, cl, now, released) {
			defer c.mu.Unlock()
			return l.settle(nil)
		}
		w.claim, cl.gate = nil, nil
		if cl.queued {
			// Others are in line: they hear of the Leave sooner if the store has no Enter of
			// ours to do before, which is to wait behind them anyway.
			next, w.front = w, true
		} else {
			c.turn(w, cl.key)
		}
	}
	c.calls++
	budget := min(time.Duration(cl.deadline.Load()-now), closeBudget)
	c.mu.Unlock()

	err := c.leave(ctx, cl, exit, budget)
	if next != nil {
		c.mu.Lock()
		next.front = false
		c.turn(next, cl.key)
		c.mu.Unlock()
	}
	c.afterRenewal(cl, now+int64(budget))
	switch {
	case err == nil:
	case driver.Gone(err):
		reason, _ := goneDetail(err)
		if reason == "" {
			reason = "it was no longer in the store when it was released"
		}
		kind := ErrBroken
		if c.clock.now() >= cl.deadline.Load() {
			kind, reason = ErrExpired, "it ran out while it was given back"
		}
		err = cl.lossOf(kind, g.token, reason)
		c.emit(c.o.Hooks.Lost, Event{Key: cl.key, Token: g.token, Err: err, Held: held})
	default:
		err = unavailable(context.Background(), err) // ctx lends its values only
	}
	if !errors.Is(err, ErrLost) {
		c.emit(c.o.Hooks.Released, Event{Key: cl.key, Token: g.token, Held: held, Err: err})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
	c.moved()
	return l.settle(wrap("release", cl.key, err))
}

// settle notes what every call of Release answers. c.mu is held.
func (l *Lease) settle(err error) error {
	l.released = true
	if l.ending == nil && err != nil {
		l.ending = &ending{}
	}
	if e := l.ending; e != nil {
		e.err = err
		if e.done != nil {
			close(e.done)
		}
	}
	return err
}

// afterRenewal waits until no renewal of cl is on its way any more, so that none is
// sent after Release has returned, or until the given time if the store hangs.
func (c *Client) afterRenewal(cl *claim, until int64) {
	c.mu.Lock()
	if !cl.busy {
		c.mu.Unlock()
		return
	}
	if cl.has().idle == nil {
		cl.gets().idle = make(chan struct{})
	}
	idle := cl.has().idle
	c.mu.Unlock()
	t := timerFor(time.Duration(until - c.clock.now()))
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}

// Do runs f under the lease and then releases it, also when f panics; the panic
// goes on. f's context ends with the lease and with ctx. The error is f's, joined
// with ErrLost if the lease ended before f did; a release that could not be
// confirmed is told to Hooks.Released only. If the lease is over already, f does
// not run, and the error says why it ended.
func (l *Lease) Do(ctx context.Context, f func(ctx context.Context, l *Lease) error) error {
	if err := l.Err(); err != nil {
		return wrap("do", l.Key(), err)
	}
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(&l.ctx, func() { cancel(context.Cause(&l.ctx)) })()
	return l.run(ctx, &leaseCtx{lease: l, outer: holds(ctx), built: &builtCtx{both, nil}}, f)
}

func (l *Lease) run(ctx, under context.Context, f func(ctx context.Context, l *Lease) error) (err error) {
	defer func() {
		if rerr := l.Release(ctx); errors.Is(rerr, ErrLost) {
			err = errors.Join(err, rerr)
		}
	}()
	return f(under, l)
}

// String describes the lease for people.
func (l *Lease) String() string {
	return fmt.Sprintf("%s (token %s)", printable(l.Key()), l.Token())
}
