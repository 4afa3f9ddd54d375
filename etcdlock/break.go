package etcdlock

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// Break ends the claim of key whose span holds token, and keeps its ID out for one
// lease. It costs three requests.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string, linger time.Duration) error {
	if linger > 0 {
		return &driver.PermanentError{Err: fmt.Errorf("etcd: a claim on %q cannot linger after a break", key)}
	}
	return b.call(ctx, rightToWrite, "breaking", key, func(ctx context.Context) error {
		for range maxAttempts {
			if done, err := b.breakOne(ctx, key, token, reason); done || err != nil {
				return err
			}
		}
		return errRaced
	})
}

// breakOne is one attempt. It returns false if the claim has changed meanwhile.
func (b *Backend) breakOne(ctx context.Context, key string, token int64, reason string) (done bool, err error) {
	line, rev := b.line(key), revisionOf(token)
	if rev < 1 {
		return true, driver.GoneError{}
	}
	answer, err := b.etcd.Get(ctx, line.claims().from, clientv3.WithRange(line.claims().end),
		clientv3.WithMinCreateRev(rev), clientv3.WithMaxCreateRev(rev))
	if err != nil {
		return false, err
	}
	own := first(answer.Kvs)
	if own == nil {
		return true, driver.GoneError{}
	}
	var r record
	if err := decode(own, &r); err != nil {
		return false, err
	}
	if token-tokenOf(rev) >= r.Span {
		return true, driver.GoneError{}
	}
	l, err := b.grant(ctx, wholeSeconds(r.ttl()))
	if err != nil {
		return false, err
	}
	value := encode(tombstone{Format: format, Broken: true, Reason: reason})
	broken, err := b.etcd.Txn(ctx).
		If(unchanged(string(own.Key), own)).
		Then(
			clientv3.OpDelete(string(own.Key)),
			clientv3.OpPut(line.tombstone(r.ID), value, clientv3.WithLease(l.id)),
		).
		Commit()
	return err == nil && broken.Succeeded, err
}
