package fencelock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// Lease is a lock that is held. All methods may be called from many goroutines at
// once. The methods of Client make it.
type Lease struct {
	claim  *claim
	parent *Lease // the lease whose grant this one shares; nil if the grant is its own
	token  fence.Token
	at     int64 // when it was granted
	terms  *terms
	ctx    leaseCtx

	cause      error          // why the lease is over; set before over
	releaseErr error          // set by the first Release
	releasing  sync.WaitGroup // until the first Release returns

	// Of a lease with a grant of its own. The mutex of the claim guards these.
	shared   *builtCtx // ends with the loss of the grant, for those who share it; nil before the first
	open     int32     // leases on the grant, with this one, whose Release was not called
	detaches bool      // a Detach is under way, so the grant is not shared

	wasRevoked bool          // the holder has heard of a notice
	revoked    chan struct{} // closed then; nil before Revoked or the notice

	orphaned bool        // the caller's context had ended before the lease; guarded by ctx.mu
	over     atomic.Bool // the lease has ended
	released atomic.Bool // Release was called
}

// Context returns a context that ends with the lease: when it is released, or when it is
// lost, at the latest at its deadline, even if the network is dead. Its context.Cause is
// ErrReleased, or ErrLost with one of ErrExpired, ErrStalled, ErrBroken, ErrMaxHold,
// ErrClosed. It descends from the ctx of the call that took the lease, and also ends with
// that ctx. The lease is still held then, and Err returns nil.
func (l *Lease) Context() context.Context { return &l.ctx }

// Token returns the fencing token. It is larger than the token of every earlier exclusive
// grant of this key, in any process. Leases that share a grant have the same token.
func (l *Lease) Token() fence.Token { return l.token }

// Key returns the name of the lock.
func (l *Lease) Key() string { return l.claim.key }

// Deadline returns when the lease ends unless it is renewed before. Renewal moves
// it. It is earlier than the end that the store keeps, by a hundredth of the lease
// and two milliseconds. The notice of a Break moves it back, if the notice is over before.
func (l *Lease) Deadline() time.Time {
	cl := l.claim
	return cl.c.clock.Wall(min(cl.deadline.Load(), l.terms.maxHold))
}

// Err returns nil while the lease is held, and the cause of its end afterwards. It
// reads the clock itself: the first call after a pause is right, whether or not a
// timer has fired yet. It costs no round trip.
func (l *Lease) Err() error {
	if err := l.ended(); err != nil {
		return err
	}
	cl := l.claim
	now := cl.c.clock.Now()
	if now < min(cl.deadline.Load(), l.terms.maxHold) {
		return nil
	}
	cl.lapse(l, now)
	return l.ended()
}

// ended returns why the lease is over, or nil. It does not look at the clock.
func (l *Lease) ended() error {
	if p := l.parent; p != nil && !l.over.Load() && p.shared.Err() != nil {
		l.ctx.end(context.Cause(p.shared)) // as AfterFunc is about to
	}
	if l.over.Load() {
		return l.cause
	}
	return nil
}

func (l *Lease) root() *Lease {
	if l.parent != nil {
		return l.parent
	}
	return l
}

// TTL returns the length of the lease, as the store keeps it. It costs no round trip.
func (l *Lease) TTL() time.Duration { return l.claim.ticket().TTL }

// Renew extends the lease to a full TTL now, in addition to the automatic renewal, and also
// while the holder is stalled. It does not count as a Tick. Under the notice of a Break the lease
// keeps its end, and Renew returns nil. It costs one round trip. An
// error other than ErrLost means that the store did not respond, or, with ErrClosed, that the
// Client is being closed; the lease is as it was.
func (l *Lease) Renew(ctx context.Context) error {
	return wrap("renew", l.Key(), l.renew(ctx))
}

func (l *Lease) renew(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	cl := l.claim
	c := cl.c
	t, counted, err := cl.beginRenew(l)
	if err != nil {
		return err
	}
	defer c.life.endWork()
	sent := c.clock.Now()
	call := c.life.renewing.Call(ctx, sent, renewTimeout(counted))
	err = renewOne(call, c.backend, t)
	call.End()
	// A call that ctx cut short says nothing about the store.
	if err == nil || driver.Gone(err) || driverutil.Ended(ctx) == nil {
		cl.renewed(l, t.TTL, sent, err)
	}
	switch lost := l.ended(); {
	case lost != nil:
		return lost
	case err == nil, goneOf(err).Left > 0:
		return nil
	}
	return c.storeError(ctx, err)
}

// Do runs f under the lease and then releases it, also if f panics; the panic continues.
// f's context ends with the lease and with ctx. The error is f's, joined with ErrLost if
// the lease ended before f did. A release that could not be confirmed is reported by
// EventReleased only. If the lease is over already, f does not run, and the error says why
// it ended.
func (l *Lease) Do(ctx context.Context, f func(ctx context.Context, l *Lease) error) error {
	if err := l.Err(); err != nil {
		return wrap("do", l.Key(), err)
	}
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(&l.ctx, func() { cancel(context.Cause(&l.ctx)) })()
	return l.run(ctx, &leaseCtx{lease: l, outer: innermostHold(ctx), built: &builtCtx{both, nil}}, f)
}

// run calls f with the context work and then releases the lease.
func (l *Lease) run(ctx, work context.Context, f func(ctx context.Context, l *Lease) error) (err error) {
	defer func() { err = withLoss(err, l.Release(ctx)) }()
	return f(work, l)
}

// String returns a description of the lease for people.
func (l *Lease) String() string {
	return fmt.Sprintf("%s (token %s)", printable(l.Key()), l.Token())
}

// leaseCtx is the context of a lease. It carries the lease for Held and for the
// detection of deadlocks, and links to the lease that its parent carries.
//
// Most leases are short, and no goroutine waits for their end. So the context that can be
// waited for is built on the first Done or Value. Until then Err reads its parent and its
// lease. Built with each lease, it costs 15 to 30 % in BenchmarkFreeLock and BenchmarkHandOff/512.
type leaseCtx struct {
	lease  *Lease
	outer  *leaseCtx
	parent context.Context // of the call that took the lease; nil if built was there from the start

	mu    sync.Mutex
	built *builtCtx
}

type builtCtx struct {
	context.Context
	cancel context.CancelCauseFunc
}

type holdsKey struct{}

// innermostHold returns the innermost leaseCtx in ctx, or nil.
func innermostHold(ctx context.Context) *leaseCtx {
	x, _ := ctx.Value(holdsKey{}).(*leaseCtx)
	return x
}

func (x *leaseCtx) Value(key any) any {
	if key == (holdsKey{}) {
		return x
	}
	return x.build().Value(key)
}

func (x *leaseCtx) Done() <-chan struct{} { return x.build().Done() }

func (x *leaseCtx) Deadline() (time.Time, bool) {
	if x.parent == nil {
		return x.built.Deadline()
	}
	return x.parent.Deadline()
}

// Err is nil if neither the lease nor the parent has ended. Otherwise the built context
// has the one that ended first.
func (x *leaseCtx) Err() error {
	if x.lease.ended() == nil && x.parent != nil && x.parent.Err() == nil {
		return nil
	}
	return x.build().Err()
}

func (x *leaseCtx) build() context.Context {
	_ = x.lease.ended() // ends this one, if the grant that it shares has ended
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.built != nil {
		return x.built.Context
	}
	over := x.lease.over.Load()
	parent := x.parent
	if over && !x.lease.orphaned {
		parent = context.WithoutCancel(parent) // the lease ended first
	}
	x.built = &builtCtx{}
	x.built.Context, x.built.cancel = context.WithCancelCause(parent)
	if over {
		x.built.cancel(x.lease.cause)
	}
	return x.built.Context
}

func (x *leaseCtx) end(cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lease.over.Load() {
		return
	}
	if x.built == nil {
		x.lease.orphaned = x.parent.Err() != nil
	}
	x.lease.cause = cause
	x.lease.over.Store(true)
	if x.built != nil {
		x.built.cancel(cause)
	}
}

// Held returns the lease for key that ctx carries, or nil. Lease.Context and what
// descends from it carry the lease until its grant is released; a lease that was
// lost is still returned, and its Err says why.
func Held(ctx context.Context, key string) *Lease {
	for x := innermostHold(ctx); x != nil; x = x.outer {
		if l := x.lease; l.Key() == key && !errors.Is(l.Err(), ErrReleased) {
			return l
		}
	}
	return nil
}

// WithoutHolds returns a ctx that carries no leases, for a goroutine that must queue as if
// it were unrelated: the leases of its starter are then neither shared nor seen as a
// deadlock. It still ends when ctx does.
func WithoutHolds(ctx context.Context) context.Context {
	return context.WithValue(ctx, holdsKey{}, (*leaseCtx)(nil))
}

// share returns a new lease on a grant that the caller's context carries, nil if the
// context holds nothing of the key, or an error if the call would wait for itself.
func (a *acquisition) share() (*Lease, error) {
	for x := innermostHold(a.ctx); x != nil; x = x.outer {
		held := x.lease.root()
		if held.claim.c != a.c || held.claim.key != a.key {
			continue
		}
		if l, err := a.shareGrant(held); l != nil || err != nil {
			return l, err
		}
	}
	return nil, nil
}
