package fencelock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// MultiLease holds several locks together, in the order of their keys. LockAll makes it; it has
// at least one lease. All methods may be called from many goroutines at once.
type MultiLease []*Lease

// LockAll takes all keys, each as Lock does, or none. It sorts them by their bytes
// and takes one after the other, so that two calls can never wait for each other;
// duplicates are merged. Under a ctx that already holds keys of this Client, every
// further key must sort after all of those, else it is ErrDeadlock: take all keys
// in one call instead.
//
// It takes the options of Lock but ClaimID, which names one claim. Options apply to each key;
// Wait bounds the whole. It costs a round trip per key
// that is free. If it fails, it has given back what it had, without the rest of a MinHold. If
// ctx has ended, it returns at once and gives back in the background.
func (c *Client) LockAll(ctx context.Context, keys []string, opts ...Option) (MultiLease, error) {
	const op = "lock all"
	if len(keys) == 0 {
		return nil, wrap(op, "", invalid("there are no keys"))
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(keys)))
	var o callOptions
	if err := o.readOptions(allTakes, false, opts); err != nil {
		return nil, wrap(op, sorted[0], err)
	}
	for _, key := range sorted {
		if err := cmp.Or(checkKey(key), inOrder(ctx, c, key, o.reentrant)); err != nil {
			return nil, wrap(op, key, err)
		}
	}

	var m MultiLease
	under := ctx
	start := c.clock.Now()
	for _, key := range sorted {
		each := opts
		if o.wait > 0 {
			left := max(o.wait-time.Duration(c.clock.Now()-start), 0)
			each = append(slices.Clip(opts), Wait(left))
		}
		l, err := c.Lock(under, key, each...)
		if err != nil {
			for _, held := range m {
				held.dropMinHold() // nothing runs, so nothing is held apart
			}
			if ctx.Err() != nil {
				go m.Release(ctx) // the caller does not wait for the store any longer
				return nil, withLoss(err, m.Err())
			}
			return nil, withLoss(err, m.Release(ctx))
		}
		m = append(m, l)
		under = l.Context()
	}
	return m, nil
}

// inOrder reports ErrDeadlock if ctx holds a key of c that does not sort
// before key, unless that is key itself and may be shared.
func inOrder(ctx context.Context, c *Client, key string, reentrant bool) error {
	var err error
	for x := innermostHold(ctx); x != nil; x = x.outer {
		cl := x.lease.claim
		if cl.c != c || !x.lease.held() {
			continue
		}
		switch held := cl.key; {
		case held == key && reentrant:
			return nil // shared, without waiting
		case held >= key:
			err = ErrDeadlock
		}
	}
	return err
}

// Context returns a context that descends from the caller's and ends as soon as one of the
// leases does; its context.Cause says which and why. Held returns the lease of one key from it.
func (m MultiLease) Context() context.Context { return m[len(m)-1].Context() }

// Err returns nil while all leases are held, and the first cause otherwise.
func (m MultiLease) Err() error {
	for _, l := range m {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Release releases all leases, the last one first, each as Lease.Release does, and returns
// their errors joined.
func (m MultiLease) Release(ctx context.Context) error {
	var errs []error
	for _, l := range slices.Backward(m) {
		errs = append(errs, l.Release(ctx))
	}
	return errors.Join(errs...)
}
