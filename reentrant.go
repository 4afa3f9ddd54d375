package fencelock

import (
	"context"
	"errors"
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

// ownLease reports whether the options are about a lease of the call's own.
func (a *acquisition) ownLease() bool {
	return a.ttl > 0 || a.noRenewal || a.maxHold > 0 || a.minHold > 0 || a.progress > 0 || a.lockDelay > 0
}
