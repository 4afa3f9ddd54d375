package etcdlock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
	"github.com/fencelock/fencelock/internal/driverutil"
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
	err := b.call(ctx, reply.Write, "renewing", ts[0].Key, func(ctx context.Context) error {
		b.renew(ctx, ts, errs)
		return nil
	})
	if err != nil {
		errs = slices.Repeat([]error{err}, len(ts))
	}
	return errs
}

func (b *Backend) renew(ctx context.Context, ts []driver.Ticket, errs []error) {
	keys := b.readOwnKeys(ctx, ts, errs)
	alive := b.keepAliveAll(ctx, keys)
	parallel(len(ts), func(i int) {
		kept, ours := &keptAlive{}, false
		if keys[i] != nil {
			kept, ours = alive[clientv3.LeaseID(keys[i].Lease)]
		}
		switch {
		case errs[i] != nil:
		case !ours || kept.err == nil && kept.ttl < ts[i].TTL || b.keys.mayDetach(driverutil.Ref(ts[i].Key, ts[i].ID)):
			// The claim is not in line, or lingers, or its lease is too short or not ours.
			_, errs[i] = b.renewAlone(ctx, &ts[i])
		default:
			errs[i] = kept.err
		}
		if leaseEnded(errs[i]) {
			errs[i] = errEnded
		}
		if driver.Gone(errs[i]) {
			b.keys.release(driverutil.Ref(ts[i].Key, ts[i].ID))
		}
		errs[i] = b.explain(ctx, reply.Write, "renewing", ts[i].Key, errs[i])
	})
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
			ops = append(ops, b.positionOf(&ts[i].Claim, b.revision(&ts[i])).ownKey())
		}
		answer, err := repeated(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
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
		k.ttl, k.err = repeated(ctx, func(ctx context.Context) (time.Duration, error) {
			return b.keepAlive(ctx, ids[i])
		})
	})
	return alive
}

// renewAlone starts the lease of t's claim again, and moves the claim to a longer lease if t
// wants one. It never shortens. It returns the lease that the claim has from now on.
func (b *Backend) renewAlone(ctx context.Context, t *driver.Ticket) (time.Duration, error) {
	for range maxAttempts {
		p, err := b.locate(ctx, &t.Claim, b.revision(t))
		if err != nil {
			return 0, err
		}
		if p.notice != nil {
			return 0, *p.notice
		}
		id := clientv3.LeaseID(p.own.Lease)
		if l := b.leases.find(id); l == nil || l.ttl >= t.TTL {
			ttl, err := b.keepAlive(ctx, id)
			stays := true
			if err == nil && ttl >= t.TTL {
				stays, err = b.refuseDetach(ctx, t, p)
			}
			switch {
			case err != nil, ttl >= t.TTL && stays:
				return ttl, err
			case !stays:
				continue
			}
		}
		ttl, moved, err := b.lengthen(ctx, t, p)
		if err != nil || moved {
			return ttl, err
		}
	}
	return 0, errRaced
}

// lengthen moves the claim of p to a lease of t.TTL. It reports false if the claim has
// changed since p was read, or if the lease has ended.
func (b *Backend) lengthen(
	ctx context.Context, t *driver.Ticket, p *position,
) (ttl time.Duration, moved bool, err error) {
	longer, err := b.leaseFor(ctx, t.TTL, t.Named)
	if err != nil {
		return 0, false, err
	}
	ttl, err = b.keepAlive(ctx, longer.id)
	if err == nil {
		moved, err = b.moveToLease(ctx, p, longer)
	}
	if leaseEnded(err) {
		b.leases.forget(longer.id)
		err = nil
	}
	return ttl, moved, err
}

// refuseDetach rewrites the claim of p on its lease if a Detach may still arrive: that would
// move the claim to a lease that is older than the renewal. It reports false if the claim has
// changed since p was read.
func (b *Backend) refuseDetach(ctx context.Context, t *driver.Ticket, p *position) (bool, error) {
	if !b.keys.mayDetach(driverutil.Ref(t.Key, t.ID)) {
		return true, nil
	}
	answer, err := b.etcd.Txn(ctx).
		If(unchanged(p.name, p.own)).
		Then(clientv3.OpPut(p.name, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())).
		Commit()
	return err == nil && answer.Succeeded, err
}

// moveToLease puts the claim of p on the lease l. It reports false if the claim has changed
// since p was read.
func (b *Backend) moveToLease(ctx context.Context, p *position, l *lease) (moved bool, err error) {
	var r record
	if err := decode(p.own, &r); err != nil {
		return false, err
	}
	r.TTL = int64(l.ttl / time.Second)
	return b.rewrite(ctx, p, &r, clientv3.WithLease(l.id))
}

// rewrite replaces the record of p's claim. It reports false if the claim has changed since p
// was read.
func (b *Backend) rewrite(ctx context.Context, p *position, r *record, lease clientv3.OpOption) (bool, error) {
	answer, err := b.etcd.Txn(ctx).
		If(unchanged(p.name, p.own), unchanged(p.line.tombstone(r.ID), p.tombstone)).
		Then(clientv3.OpPut(p.name, encode(r), lease)).
		Commit()
	return err == nil && answer.Succeeded, err
}

const (
	maxRequests    = 3
	requestTimeout = time.Second // or a quarter of the time that is left
)

// repeated sends a request that may be applied twice. A client sends its requests to its members
// in turn, and a member that hangs keeps a request until its context ends. So a request that is
// not answered in time is sent again, to another member. The last one has all the time left.
func repeated[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	for range maxRequests - 1 {
		timeout := requestTimeout
		if end, ok := ctx.Deadline(); ok {
			timeout = min(timeout, time.Until(end)/4)
		}
		short, cancel := context.WithTimeout(ctx, timeout)
		answer, err := request(short)
		late := short.Err() != nil
		cancel()
		if err == nil || !late {
			return answer, err
		}
	}
	return request(ctx)
}

// maxParallel bounds the requests of one call that are under way at the same time.
const maxParallel = 16

// parallel calls f with 0 to n-1, on maxParallel goroutines at a time, and waits for all.
func parallel(n int, f func(i int)) {
	var group sync.WaitGroup
	limit := make(chan struct{}, maxParallel)
	for i := range n {
		limit <- struct{}{}
		group.Go(func() {
			defer func() { <-limit }()
			f(i)
		})
	}
	group.Wait()
}
