package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// Break ends the claim of key whose span holds token, and keeps its id out for as
// long as its lease is. It costs three requests, and now and then a lease.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string) error {
	ctx, end, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for range mostTries {
		done, err := b.breakOne(ctx, key, token, reason)
		if leaseEnded(err) {
			continue
		}
		if done || err != nil {
			return b.failed(ctx, "breaking", key, err)
		}
	}
	return b.failed(ctx, "breaking", key, errRaced)
}

// breakOne is one attempt. It returns false if the claim has changed meanwhile.
func (b *Backend) breakOne(ctx context.Context, key string, token int64, reason string) (done bool, err error) {
	line, rev := b.line(key), revisionOf(token)
	if rev < 1 {
		return true, driver.ErrGone{}
	}
	claims := line.claims()
	answer, err := b.etcd.Get(ctx, claims.from, clientv3.WithRange(claims.to), clientv3.WithMinCreateRev(rev), clientv3.WithMaxCreateRev(rev))
	if err != nil {
		return true, err
	}
	own := first(answer.Kvs)
	if own == nil {
		return true, driver.ErrGone{}
	}
	var r record
	if err := decode(own, &r); err != nil {
		return true, err
	}
	if token-tokenOf(rev) >= r.Span {
		return true, driver.ErrGone{}
	}
	left, err := b.etcd.TimeToLive(ctx, clientv3.LeaseID(own.Lease))
	if err != nil {
		return true, err
	}
	rest, err := b.shared(ctx, class{seconds: max(r.TTL, left.GrantedTTL), rest: true})
	if err != nil {
		return true, err
	}
	broken, err := b.etcd.Txn(ctx).
		If(unchanged(string(own.Key), own)).
		Then(
			clientv3.OpDelete(string(own.Key)),
			clientv3.OpPut(line.rest(r.ID), encode(restRecord{Format: format, Broken: true, Reason: reason}), clientv3.WithLease(rest.id)),
		).
		Commit()
	if leaseEnded(err) {
		b.forget(rest.id)
	}
	if err != nil {
		return true, err
	}
	return broken.Succeeded, nil
}
