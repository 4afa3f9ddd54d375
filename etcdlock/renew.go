package etcdlock

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// opsPerRead is how many keys are read with one transaction; etcd takes 128
// operations unless it is configured otherwise.
const opsPerRead = 100

// Renew reads the key of each claim, and keeps alive every lease that these hang
// on. A lease that is alive proves nothing of a single claim: its key may have been
// deleted by Break, or by hand. It costs one read for every hundred claims, all at
// once, and one keep-alive for each lease; each is asked of another member too when
// the first is silent.
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
	found := b.find(ctx, ts, errs)

	kept := make(map[clientv3.LeaseID]error)
	for _, kv := range found {
		if kv != nil {
			kept[clientv3.LeaseID(kv.Lease)] = nil
		}
	}
	b.keepAll(ctx, kept)

	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i, kv := range found {
		t := &ts[i]
		switch l := (*lease)(nil); {
		case errs[i] != nil:
		case kv == nil:
			group.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				errs[i] = b.whyGone(ctx, t)
			})
		default:
			l = b.ours(clientv3.LeaseID(kv.Lease))
			if l != nil && l.ttl >= t.TTL {
				errs[i] = kept[l.id]
				break
			}
			// It lingers, or its lease is too short, or another Backend's.
			group.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				errs[i] = b.renewAlone(ctx, t)
			})
		}
	}
	group.Wait()
	for i, err := range errs {
		if leaseEnded(err) {
			err = errEnded
		}
		if driver.Gone(err) {
			b.slots.gone(place{ts[i].Key, ts[i].ID}, ts[i].TTL+forgotten)
		}
		errs[i] = b.failed(ctx, "renewing", ts[i].Key, err)
	}
	return errs
}

// find reads the keys of all claims. (Without their values etcd 3.7 would not say
// what lease they hang on.) It sets errs where that fails.
func (b *Backend) find(ctx context.Context, ts []driver.Ticket, errs []error) []*keyValue {
	found := make([]*keyValue, len(ts))
	var group sync.WaitGroup
	for from := 0; from < len(ts); from += opsPerRead {
		to := min(from+opsPerRead, len(ts))
		group.Go(func() {
			ops := make([]clientv3.Op, 0, to-from)
			for i := from; i < to; i++ {
				ops = append(ops, b.line(ts[i].Key).own(b.slots.name(place{ts[i].Key, ts[i].ID}), revisionOf(ts[i].Token)))
			}
			answer, err := hedged(ctx, b, func(ctx context.Context) (*clientv3.TxnResponse, error) {
				return b.etcd.Txn(ctx).Then(ops...).Commit()
			})
			for i := from; i < to; i++ {
				if err != nil {
					errs[i] = err
				} else {
					found[i] = ownIn(answer, i-from, ts[i].ID)
				}
			}
		})
	}
	group.Wait()
	return found
}

// keepAll keeps leases alive that are ours, all at once, and notes how that went.
func (b *Backend) keepAll(ctx context.Context, ids map[clientv3.LeaseID]error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	mu.Lock()
	for id := range ids {
		if b.ours(id) == nil {
			continue
		}
		group.Go(func() {
			_, err := hedged(ctx, b, func(ctx context.Context) (time.Duration, error) {
				ttl, _, err := b.keepAlive(ctx, id)
				return ttl, err
			})
			mu.Lock()
			defer mu.Unlock()
			ids[id] = err
		})
	}
	mu.Unlock()
	group.Wait()
}

// whyGone says why a claim is not in line.
func (b *Backend) whyGone(ctx context.Context, t *driver.Ticket) error {
	answer, err := b.etcd.Get(ctx, b.line(t.Key).rest(t.ID))
	if err != nil {
		return err
	}
	return goneFor(first(answer.Kvs))
}

// renewAlone renews a claim whose lease has to be looked at.
func (b *Backend) renewAlone(ctx context.Context, t *driver.Ticket) error {
	line := b.line(t.Key)
	answer, err := b.etcd.Txn(ctx).Then(line.own(b.slots.name(place{t.Key, t.ID}), revisionOf(t.Token)), clientv3.OpGet(line.rest(t.ID))).Commit()
	if err != nil {
		return err
	}
	own, rest := ownIn(answer, 0, t.ID), one(answer, 1)
	if own == nil || rest != nil {
		return goneFor(rest)
	}
	_, err = b.prolong(ctx, line, &t.Claim, own)
	return err
}

// prolong starts the lease of the claim own again, and moves the claim to a longer
// lease if c wants one. It never shortens. It returns the lease that the claim has
// from now on.
func (b *Backend) prolong(ctx context.Context, line lineKeys, c *driver.Claim, own *keyValue) (time.Duration, error) {
	for range mostTries {
		id := clientv3.LeaseID(own.Lease)
		if l := b.ours(id); l == nil || l.ttl >= c.TTL {
			ttl, _, err := b.keepAlive(ctx, id)
			if err != nil || ttl >= c.TTL {
				return ttl, err
			}
		}
		l, err := b.shared(ctx, class{seconds: seconds(c.TTL)})
		if err != nil {
			return 0, err
		}
		ttl, _, err := b.keepAlive(ctx, l.id)
		if leaseEnded(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		var r record
		if err := decode(own, &r); err != nil {
			return 0, err
		}
		r.TTL = int64(ttl / time.Second)
		answer, err := b.etcd.Txn(ctx).
			If(unchanged(string(own.Key), own), absent(line.rest(c.ID))).
			Then(clientv3.OpPut(string(own.Key), encode(r), clientv3.WithLease(l.id))).
			Else(clientv3.OpGet(string(own.Key)), clientv3.OpGet(line.rest(c.ID))).
			Commit()
		if leaseEnded(err) {
			b.forget(l.id)
			continue
		}
		if err != nil {
			return 0, err
		}
		if answer.Succeeded {
			return ttl, nil
		}
		var rest *keyValue
		if own, rest = ownIn(answer, 0, c.ID), one(answer, 1); own == nil || rest != nil {
			return 0, goneFor(rest)
		}
	}
	return 0, errRaced
}
