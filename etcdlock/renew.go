package etcdlock

import (
	"context"
	"maps"
	"slices"
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
	var alone []int
	for i := range ts {
		if errs[i] != nil {
			continue
		}
		var kept *keptAlive
		if keys[i] != nil {
			kept = alive[clientv3.LeaseID(keys[i].Lease)]
		}
		if ours := kept != nil; !ours || kept.err == nil && kept.ttl < ts[i].TTL {
			alone = append(alone, i)
		} else {
			errs[i] = kept.err
		}
	}
	// The claim is not in line, or lingers, or its lease is too short or another Backend's.
	parallel(len(alone), func(n int) {
		t := &ts[alone[n]]
		_, errs[alone[n]] = b.renewAlone(ctx, &t.Claim, revisionOf(t.Token))
	})
	for i, err := range errs {
		if leaseEnded(err) {
			err = errEnded
		}
		if driver.Gone(err) {
			b.keys.release(ts[i].Ref())
		}
		errs[i] = b.failed(ctx, "renewing", ts[i].Key, err)
	}
	return errs
}

// readOwnKeys reads the keys of all claims, and sets errs where that fails. (Without the
// values etcd 3.7 would not tell the leases.)
func (b *Backend) readOwnKeys(ctx context.Context, ts []driver.Ticket, errs []error) []*keyValue {
	keys := make([]*keyValue, len(ts))
	parallel((len(ts)+keysPerRead-1)/keysPerRead, func(page int) {
		from := page * keysPerRead
		to := min(from+keysPerRead, len(ts))
		var ops []clientv3.Op
		for i := from; i < to; i++ {
			ops = append(ops, b.positionOf(&ts[i].Claim, revisionOf(ts[i].Token)).ownKey())
		}
		answer, err := hedged(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return b.etcd.Txn(ctx).Then(ops...).Commit()
		})
		for i := from; i < to; i++ {
			if errs[i] = err; err == nil {
				keys[i] = withID(found(answer, i-from), ts[i].ID)
			}
		}
	})
	return keys
}

// keptAlive is the answer to a keep-alive.
type keptAlive struct {
	ttl time.Duration
	err error
}

// keepAliveAll keeps those leases of keys alive that are ours.
func (b *Backend) keepAliveAll(ctx context.Context, keys []*keyValue) map[clientv3.LeaseID]*keptAlive {
	alive := make(map[clientv3.LeaseID]*keptAlive)
	for _, kv := range keys {
		if kv != nil && b.leases.find(clientv3.LeaseID(kv.Lease)) != nil {
			alive[clientv3.LeaseID(kv.Lease)] = &keptAlive{}
		}
	}
	ids := slices.Collect(maps.Keys(alive))
	parallel(len(ids), func(i int) {
		k := alive[ids[i]]
		k.ttl, k.err = hedged(ctx, func(ctx context.Context) (time.Duration, error) { return b.keepAlive(ctx, ids[i]) })
	})
	return alive
}

// renewAlone starts the lease of c again, and moves c to a longer lease if c wants one. It
// never shortens. It returns the lease that c has from now on.
func (b *Backend) renewAlone(ctx context.Context, c *driver.Claim, rev int64) (time.Duration, error) {
	for range maxAttempts {
		p, err := b.locate(ctx, c, rev)
		if err != nil {
			return 0, err
		}
		id := clientv3.LeaseID(p.own.Lease)
		if l := b.leases.find(id); l == nil || l.ttl >= c.TTL {
			ttl, err := b.keepAlive(ctx, id)
			if err != nil || ttl >= c.TTL {
				return ttl, err
			}
		}
		longer, err := b.leaseOf(ctx, c.TTL)
		if err != nil {
			return 0, err
		}
		ttl, err := b.keepAlive(ctx, longer.id)
		moved := false
		if err == nil {
			moved, err = b.moveToLease(ctx, c, p, longer)
		}
		switch {
		case leaseEnded(err):
			b.leases.forget(longer.id)
		case err != nil || moved:
			return ttl, err
		}
	}
	return 0, errRaced
}

// moveToLease puts the claim of p on the lease l. It reports false if the claim has changed
// since p was read.
func (b *Backend) moveToLease(ctx context.Context, c *driver.Claim, p *position, l *lease) (moved bool, err error) {
	var r record
	if err := decode(p.own, &r); err != nil {
		return false, err
	}
	r.TTL = int64(l.ttl / time.Second)
	answer, err := b.etcd.Txn(ctx).
		If(unchanged(p.name, p.own), absent(p.line.tombstone(c.ID))).
		Then(clientv3.OpPut(p.name, encode(r), clientv3.WithLease(l.id))).
		Commit()
	return err == nil && answer.Succeeded, err
}
