package etcdlock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// Leave takes the claim of t out of its line. It costs one transaction for a ticket with
// its token that leaves nothing behind. Otherwise it costs two, and a lease for what
// lingers and one for a tombstone.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	err := b.call(ctx, reply.Write, "leaving the line of", t.Key, func(ctx context.Context) error {
		return b.leave(ctx, &t, e)
	})
	if err == nil || isAnswer(err) && !errors.Is(err, driver.ErrGranted) {
		b.keys.release(driverutil.Ref(t.Key, t.ID))
	}
	return err
}

func (b *Backend) leave(ctx context.Context, t *driver.Ticket, e driver.Exit) error {
	if t.Token != 0 && e == (driver.Exit{}) {
		if done, err := b.deleteOwn(ctx, t); done || err != nil {
			return err
		}
	}
	for range maxAttempts {
		if done, err := b.readAndLeave(ctx, t, e); done || err != nil {
			return err
		}
	}
	return errRaced
}

// deleteOwn deletes the claim's key if it is the one that Enter made. It reports false if it is
// not. A repeat that arrives late deletes nothing, for the next claim with this name has another
// revision. A claim that lingers has a tombstone.
func (b *Backend) deleteOwn(ctx context.Context, t *driver.Ticket) (done bool, err error) {
	p := b.positionOf(&t.Claim, b.revision(t))
	if p.rev == 0 || p.name == "" {
		return false, nil // no claim has this token, or another Backend put it
	}
	// The reads that follow a refusal would go through the log with each Leave.
	ifs := []clientv3.Cmp{createdAt(p.name, p.rev), absent(p.line.tombstone(t.ID))}
	answer, err := b.etcd.Txn(untimed{ctx}).If(ifs...).Then(clientv3.OpDelete(p.name)).Commit()
	return err == nil && answer.Succeeded, err
}

// readAndLeave reads the position, and leaves if nothing has changed since. It reports
// false if something has. It leaves a tombstone if an Enter of the ID may still arrive.
//
// With IfWaiting, that the claim's key is unchanged is enough: whatever returns a grant of a claim
// that has waited writes it to that key first (see check).
func (b *Backend) readAndLeave(ctx context.Context, t *driver.Ticket, e driver.Exit) (done bool, err error) {
	p, err := b.locate(ctx, &t.Claim, b.revision(t))
	w := exitWrites{b: b, t: t, p: p}
	var result error
	switch {
	case err == nil && e.IfWaiting && p.granted:
		return true, driver.ErrGranted
	case err == nil:
		err = w.leave(ctx, e)
	case driver.Gone(err):
		result, err = absentFor(t.ID, p.tombstone, p.mark), nil
	}
	if err == nil && e.Tombstone {
		err = w.keepOut(ctx, max(t.TTL, e.Linger))
	}
	if err != nil || len(w.ops) == 0 {
		return true, cmp.Or(err, result)
	}
	ifs := []clientv3.Cmp{p.unchangedOwn(), unchanged(p.line.tombstone(t.ID), p.tombstone)}
	if e.Mark != "" {
		ifs = append(ifs, unchanged(p.line.mark(), p.mark))
	}
	answer, err := b.etcd.Txn(ctx).If(ifs...).Then(w.ops...).Commit()
	if err != nil || !answer.Succeeded {
		return false, err // the leases that were granted for it end by themselves
	}
	return true, result
}

// absentFor answers a Leave of a claim that is not in line: nil if the claim wrote the
// mark, because then this Leave is a repeat.
func absentFor(id string, tombstone, mark *keyValue) error {
	if mark != nil {
		var m markRecord
		if err := decode(mark, &m); err != nil {
			return err
		}
		if m.Writer == id {
			return nil
		}
	}
	return goneFor(tombstone)
}

// unchangedOwn compares that the claim's key is as it was read. If its name is not known,
// no claim may have joined since: it could be the one.
func (p *position) unchangedOwn() clientv3.Cmp {
	if p.name == "" {
		return p.line.claims().noneAfter(p.at)
	}
	return unchanged(p.name, p.under)
}

// exitWrites are the writes of a Leave. Their leases are never renewed.
type exitWrites struct {
	b   *Backend
	t   *driver.Ticket
	p   *position
	ops []clientv3.Op
}

// leave deletes the claim, or makes it linger, and writes the mark of a claim that is
// granted.
func (w *exitWrites) leave(ctx context.Context, e driver.Exit) error {
	if e.Mark != "" && w.p.granted {
		m, err := w.mark(e)
		if err != nil {
			return err
		}
		w.ops = append(w.ops, clientv3.OpPut(w.p.line.mark(), encode(m)))
	}
	if e.Linger == 0 {
		w.ops = append(w.ops, clientv3.OpDelete(w.p.name))
		return nil
	}
	var r record
	if err := decode(w.p.own, &r); err != nil {
		return err
	}
	put, l, err := w.b.lingering(ctx, w.p.own, &r, e.Linger)
	if err != nil {
		return err
	}
	w.ops = append(w.ops, put)
	if !e.Tombstone { // the tombstone ends together with the claim: one lease, one revocation
		w.putTombstone(l)
	}
	return nil
}

// mark is the mark that e leaves, or the larger one that the line has.
func (w *exitWrites) mark(e driver.Exit) (markRecord, error) {
	m := markRecord{Format: format, Mark: []byte(e.Mark), Writer: w.t.ID}
	if w.p.mark == nil {
		return m, nil
	}
	var before markRecord
	err := decode(w.p.mark, &before)
	if bytes.Compare(before.Mark, m.Mark) > 0 {
		m.Mark = before.Mark
	}
	return m, err
}

// lingering makes the claim own, which holds r, linger for d on a lease of its own.
func (b *Backend) lingering(
	ctx context.Context, own *keyValue, r *record, d time.Duration,
) (clientv3.Op, *lease, error) {
	l, err := b.grant(ctx, wholeSeconds(d))
	if err != nil {
		return clientv3.Op{}, nil, err
	}
	r.Granted, r.Lingering, r.Noticed = true, true, false
	r.TTL, r.Since = int64(l.ttl/time.Second), time.Now().UnixMilli()
	return clientv3.OpPut(string(own.Key), encode(r), clientv3.WithLease(l.id)), l, nil
}

// keepOut writes a tombstone that lasts for ttl at the least.
func (w *exitWrites) keepOut(ctx context.Context, ttl time.Duration) error {
	if w.p.tombstone != nil {
		left, err := w.b.etcd.TimeToLive(ctx, clientv3.LeaseID(w.p.tombstone.Lease))
		if err != nil || left.TTL > wholeSeconds(ttl) {
			return err
		}
	}
	l, err := w.b.grant(ctx, wholeSeconds(ttl))
	if err == nil {
		w.putTombstone(l)
	}
	return err
}

func (w *exitWrites) putTombstone(l *lease) {
	value := encode(tombstone{Format: format})
	if w.p.tombstone != nil {
		value = string(w.p.tombstone.Value) // the reason that an operator wrote stays
	}
	w.ops = append(w.ops, clientv3.OpPut(w.p.line.tombstone(w.t.ID), value, clientv3.WithLease(l.id)))
}
