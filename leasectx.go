package fencelock

import (
	"context"
	"sync"
	"time"
)

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

// builtCtx is a context that can be waited for.
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
// knows which of the two ended first.
func (x *leaseCtx) Err() error {
	if x.lease.ended() == nil && x.parent != nil && x.parent.Err() == nil {
		return nil
	}
	return x.build().Err()
}

// build returns the context that can be waited for.
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

// end ends the lease and its context, unless the lease is over.
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
