package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
)

// Break ends the claim of key whose span holds token, and keeps its ID out for one
// lease. It costs three requests, with a delay five.
func (b *Backend) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	return b.call(ctx, reply.Write, "breaking", key, func(ctx context.Context) error {
		for range maxAttempts {
			if done, err := b.breakOne(ctx, key, token, how); done || err != nil {
				return err
			}
		}
		return errRaced
	})
}

// breakOne is one attempt. It returns false if the claim has changed meanwhile.
func (b *Backend) breakOne(
	ctx context.Context, key string, token int64, how driver.Break,
) (done bool, err error) {
	line := b.line(key)
	own, r, err := b.claimWith(ctx, line, token)
	if err != nil {
		return driver.Gone(err), err
	}
	w := breakWrites{b: b, key: key, own: own, r: &r, keptOut: r.ttl()}
	if err := w.readNotice(ctx); err != nil {
		return false, err
	}
	if r.Lingering && how.Delay == 0 {
		return true, nil
	}
	switch err := w.prepare(ctx, how); {
	case driver.Gone(err):
		return false, nil
	case err != nil:
		return false, err
	}
	l, err := b.grant(ctx, wholeSeconds(w.keptOut))
	if err != nil {
		return false, err
	}
	value := encode(tombstone{Format: format, Broken: true, Reason: how.Reason})
	broken, err := b.etcd.Txn(ctx).
		If(append(w.ifs, unchanged(string(own.Key), own))...).
		Then(w.end, clientv3.OpPut(line.tombstone(r.ID), value, clientv3.WithLease(l.id))).
		Commit()
	return err == nil && broken.Succeeded, err
}

// claimWith reads the claim whose span holds token.
func (b *Backend) claimWith(ctx context.Context, line line, token int64) (own *keyValue, r record, err error) {
	answer, err := b.etcd.Get(ctx, line.claims().from, clientv3.WithRange(line.claims().end))
	if err != nil {
		return nil, r, err
	}
	for _, kv := range answer.Kvs {
		var r record
		err := decode(kv, &r)
		switch at := token - r.token(kv.CreateRevision); {
		case err != nil && kv.CreateRevision == revisionOf(token):
			return nil, r, err
		case err == nil && at >= 0 && at < r.Span:
			return kv, r, nil
		}
	}
	return nil, r, driver.GoneError{}
}

// breakWrites are how a claim ends by force.
type breakWrites struct {
	b       *Backend
	key     string
	own     *keyValue
	r       *record       // what own holds
	notice  time.Duration // what is left of it
	keptOut time.Duration // how long its ID is kept out
	ifs     []clientv3.Cmp
	end     clientv3.Op
}

// prepare decides whether the claim is deleted, lingers, or gets notice.
func (w *breakWrites) prepare(ctx context.Context, how driver.Break) error {
	w.end = clientv3.OpDelete(string(w.own.Key))
	if w.r.Lingering || w.r.Noticed {
		if err := w.keepTombstone(ctx); err != nil {
			return err
		}
	}
	linger := w.delay(how.Delay)
	if linger <= 0 && (how.Notice <= 0 || w.r.Lingering) {
		return nil
	}
	if waits, err := w.waits(ctx); waits || err != nil {
		return err
	}
	if how.Notice > 0 && !w.r.Lingering {
		return w.giveNotice(ctx, how.Notice, max(linger, 0))
	}
	linger, err := w.longer(ctx, linger)
	if err != nil {
		return err
	}
	w.keptOut = max(w.keptOut, linger)
	w.end, _, err = w.b.lingering(ctx, w.own, w.r, linger)
	return err
}

// longer returns linger, or what is left of the time for which the claim lingers already, if that is
// longer.
func (w *breakWrites) longer(ctx context.Context, linger time.Duration) (time.Duration, error) {
	if !w.r.Lingering {
		return linger, nil
	}
	left, err := w.b.etcd.TimeToLive(ctx, clientv3.LeaseID(w.own.Lease))
	if err != nil {
		return 0, err
	}
	return max(linger, time.Duration(left.TTL+1)*time.Second), nil // etcd tells whole seconds
}

// keepTombstone has the new tombstone last for as long as the one that is there.
func (w *breakWrites) keepTombstone(ctx context.Context) error {
	name := w.b.line(w.key).tombstone(w.r.ID)
	answer, err := w.b.etcd.Get(ctx, name)
	if err != nil {
		return err
	}
	kv := first(answer.Kvs)
	w.ifs = append(w.ifs, unchanged(name, kv))
	if kv == nil {
		return nil
	}
	left, err := w.b.etcd.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
	if err == nil {
		w.keptOut = max(w.keptOut, time.Duration(left.TTL)*time.Second)
	}
	return err
}

// waits reports whether the claim waits, and has the transaction compare that it still does. A
// claim behind more than maxCompared others is taken for one that is granted.
func (w *breakWrites) waits(ctx context.Context) (bool, error) {
	const maxCompared = 50 // two comparisons each; etcd takes 128
	if w.r.Lingering {
		return false, nil
	}
	c := driver.Claim{Key: w.key, ID: w.r.ID, Capacity: w.r.Capacity, Weight: w.r.Weight}
	p, err := w.b.locate(ctx, &c, w.own.CreateRevision)
	if err != nil || p.granted {
		return false, err
	}
	blockers := []string{p.blocker}
	if p.blocker == "" {
		blockers = blockers[:0]
		room := c.Capacity - c.Weight
		for name, weight := range p.weights {
			if blockers = append(blockers, name); weight > room {
				break
			}
			room -= weight
		}
	}
	if len(blockers) > maxCompared {
		return false, nil
	}
	for _, name := range blockers {
		rev := clientv3.CreateRevision(name)
		w.ifs = append(w.ifs, clientv3.Compare(rev, ">", 0), clientv3.Compare(rev, "<", p.at+1))
	}
	return true, nil
}
