package etcdlock

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// keysPerRead is how many keys are read with one transaction; etcd takes 128
// operations unless it is configured otherwise.
const keysPerRead = 100

// Renew reads the key of each claim, and keeps alive the leases of these keys. A lease
// that is alive proves nothing about one claim: Break, or a person, may have deleted its
// key. It costs one read for every hundred claims and one keep-alive for each lease. A
// request without an answer is sent again, to another member.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	ctx, end, err := b.begin(ctx)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer end()
	keys := b.readOwnKeys(ctx, ts, errs)
	alive := b.keepAliveAll(ctx, keys)
	each := newParallel()
	for i := range ts {
		if errs[i] != nil {
			continue
		}
		var done bool
		if done, errs[i] = b.renewedTogether(keys[i], &ts[i], alive); !done {
			each.run(func() { errs[i] = b.renewAlone(ctx, &ts[i]) })
		}
	}
	each.wait()
	for i, err := range errs {
		if leaseEnded(err) {
			err = errEnded
		}
		if driver.Gone(err) {
			b.keys.notInLine(ts[i].Ref(), ts[i].TTL+grace)
		}
		errs[i] = b.failed(ctx, "renewing", ts[i].Key, err)
	}
	return errs
}

// readOwnKeys reads the keys of all claims, and sets errs where that fails. (Without the
// values etcd 3.7 would not tell the leases.)
func (b *Backend) readOwnKeys(ctx context.Context, ts []driver.Ticket, errs []error) []*keyValue {
	keys := make([]*keyValue, len(ts))
	var group sync.WaitGroup
	for from := 0; from < len(ts); from += keysPerRead {
		to := min(from+keysPerRead, len(ts))
		group.Go(func() {
			ops := make([]clientv3.Op, 0, to-from)
			for i := from; i < to; i++ {
				ops = append(ops, b.positionOf(&ts[i].Claim, revisionOf(ts[i].Token)).ownKey())
			}
			answer, err := hedged(ctx, b, func(ctx context.Context) (*clientv3.TxnResponse, error) {
				return b.etcd.Txn(ctx).Then(ops...).Commit()
			})
			for i := from; i < to; i++ {
				if err != nil {
					errs[i] = err
				} else {
					keys[i] = withID(found(answer, i-from), ts[i].ID)
				}
			}
		})
	}
	group.Wait()
	return keys
}

// keepAliveAll keeps those leases of keys alive that are ours, and returns how that went.
func (b *Backend) keepAliveAll(ctx context.Context, keys []*keyValue) map[clientv3.LeaseID]error {
	results := make(map[clientv3.LeaseID]error)
	for _, kv := range keys {
		if kv != nil && b.leases.find(clientv3.LeaseID(kv.Lease)) != nil {
			results[clientv3.LeaseID(kv.Lease)] = nil
		}
	}
	var ids []clientv3.LeaseID
	for id := range results {
		ids = append(ids, id)
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, id := range ids {
		group.Go(func() {
			_, err := hedged(ctx, b, func(ctx context.Context) (time.Duration, error) { return b.keepAlive(ctx, id) })
			mu.Lock()
			defer mu.Unlock()
			results[id] = err
		})
	}
	group.Wait()
	return results
}

// renewedTogether reports what keepAliveAll has done for a claim. It reports false if
// the claim needs a look of its own: it is not in line, it lingers, its lease is too
// short, or its lease is another Backend's.
func (b *Backend) renewedTogether(kv *keyValue, t *driver.Ticket, alive map[clientv3.LeaseID]error) (bool, error) {
	if kv == nil {
		return false, nil
	}
	err, ours := alive[clientv3.LeaseID(kv.Lease)]
	if !ours {
		return false, nil
	}
	if err == nil {
		l := b.leases.find(clientv3.LeaseID(kv.Lease))
		if l == nil || l.ttl < t.TTL {
			return false, nil
		}
	}
	return true, err
}

// renewAlone renews a claim whose lease has to be looked at.
func (b *Backend) renewAlone(ctx context.Context, t *driver.Ticket) error {
	p := b.positionOf(&t.Claim, revisionOf(t.Token))
	answer, err := b.etcd.Txn(ctx).Then(p.ownKey(), clientv3.OpGet(p.line.tombstone(t.ID))).Commit()
	if err != nil {
		return err
	}
	own, grave := withID(found(answer, 0), t.ID), first(found(answer, 1))
	if own == nil || grave != nil {
		return goneFor(grave)
	}
	_, err = b.prolong(ctx, p.line, &t.Claim, own)
	return err
}

// prolong starts the lease of the claim own again, and moves the claim to a longer lease
// if c wants one. It never shortens. It returns the lease that the claim has from now on.
func (b *Backend) prolong(ctx context.Context, line line, c *driver.Claim, own *keyValue) (time.Duration, error) {
	for range maxAttempts {
		id := clientv3.LeaseID(own.Lease)
		if l := b.leases.find(id); l == nil || l.ttl >= c.TTL {
			ttl, err := b.keepAlive(ctx, id)
			if err != nil || ttl >= c.TTL {
				return ttl, err
			}
		}
		ttl, now, err := b.moveToLease(ctx, line, c, own)
		switch {
		case leaseEnded(err): // of the longer lease: another one is granted
		case err != nil || now == nil:
			return ttl, err
		default:
			own = now // it has changed meanwhile
		}
	}
	return 0, errRaced
}

// moveToLease puts the claim own on our lease of the length that c wants. If the claim
// has changed meanwhile, it returns what it is now.
func (b *Backend) moveToLease(ctx context.Context, line line, c *driver.Claim, own *keyValue,
) (ttl time.Duration, now *keyValue, err error) {
	l, err := b.leaseOf(ctx, leaseKind{seconds: wholeSeconds(c.TTL)})
	if err != nil {
		return 0, nil, err
	}
	if ttl, err = b.keepAlive(ctx, l.id); err != nil {
		return 0, nil, err
	}
	var r record
	if err := decode(own, &r); err != nil {
		return 0, nil, err
	}
	r.TTL = int64(ttl / time.Second)
	name := string(own.Key)
	answer, err := b.etcd.Txn(ctx).
		If(unchanged(name, own), absent(line.tombstone(c.ID))).
		Then(clientv3.OpPut(name, encode(r), clientv3.WithLease(l.id))).
		Else(clientv3.OpGet(name), clientv3.OpGet(line.tombstone(c.ID))).
		Commit()
	if leaseEnded(err) {
		b.leases.forget(l.id)
	}
	if err != nil || answer.Succeeded {
		return ttl, nil, err
	}
	own, grave := withID(found(answer, 0), c.ID), first(found(answer, 1))
	if own == nil || grave != nil {
		return 0, nil, goneFor(grave)
	}
	return 0, own, nil
}
