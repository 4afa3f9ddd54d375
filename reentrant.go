package fencelock

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
)

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

// shareGrant returns a new lease on the grant of held, or nil if that is over.
func (a *acquisition) shareGrant(held *Lease) (*Lease, error) {
	cl := held.claim
	cl.mu.Lock()
	defer cl.unlock()
	switch {
	case !held.heldLocked() || cl.lapseLocked(a.c.clock.Now()):
		return nil, nil
	case a.capacity != int64(cl.capacity):
		return nil, (&driver.Claim{Capacity: a.capacity}).CheckKind(int64(cl.capacity))
	case !a.reentrant || a.weight > int64(cl.weight):
		return nil, fmt.Errorf("this context already holds the key: %w", ErrDeadlock)
	case held.detaches:
		return nil, fmt.Errorf("the lease of %s is not shared any more: %w", printable(a.key), ErrDetached)
	case a.claimID != "" && a.claimID != cl.id:
		return nil, invalid("the lease of %s is shared, and its claim has another ClaimID", printable(a.key))
	case a.ownLease():
		return nil, invalid("the lease of %s is shared: TTL, NoRenewal, MaxHold, MinHold, Progress "+
			"and LockDelay belong to the outer call", printable(a.key))
	}
	return held.shareLocked(a.ctx), nil
}

// ownLease reports whether the options are about a lease of the call's own.
func (a *acquisition) ownLease() bool {
	return a.ttl > 0 || a.noRenewal || a.maxHold > 0 || a.minHold > 0 || a.progress > 0 || a.lockDelay > 0
}
