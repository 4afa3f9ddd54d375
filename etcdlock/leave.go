package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// Leave takes the claim of t out of its line. It costs one transaction for a ticket with
// its token, unless the claim is to linger or a claim that is not exclusive leaves a
// mark. Otherwise it costs two, and a lease for what lingers or for a tombstone.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	ctx, end, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	b.watches.take(t.Ref()).close()
	err = b.leave(ctx, &t, e)
	while := max(e.Linger, t.TTL) + grace
	switch {
	case driver.Gone(err):
		b.keys.notInLine(t.Ref(), while)
	case err != nil || e.Linger > 0:
		b.keys.maybeInLine(t.Ref(), while)
	default:
		b.keys.left(t.Ref())
	}
	return b.failed(ctx, "leaving the line of", t.Key, err)
}

func (b *Backend) leave(ctx context.Context, t *driver.Ticket, e driver.Exit) error {
	simple := t.Token != 0 && e.Linger == 0 && (e.Mark == "" || classOf(&t.Claim) == classWriter)
	if simple {
		done, err := b.deleteOwn(ctx, t, e)
		if done || err != nil {
			return err
		}
	}
	for range maxAttempts {
		done, err := b.readAndLeave(ctx, t, e)
		if leaseEnded(err) {
			continue
		}
		if done || err != nil {
			return err
		}
	}
	return errRaced
}

// deleteOwn deletes the claim's key if it is the one that Enter made, and writes the mark
// if no older claim is in line. It reports false if the claim is in line and one of these
// does not hold. A repeat that arrives late deletes nothing, for the next claim with this
// name has another revision. A claim that lingers has a tombstone.
func (b *Backend) deleteOwn(ctx context.Context, t *driver.Ticket, e driver.Exit) (done bool, err error) {
	p := b.positionOf(&t.Claim, revisionOf(t.Token))
	if p.rev == 0 || p.name == "" {
		return false, nil // no claim has this token, or another Backend put it
	}
	ifs := []clientv3.Cmp{createdAt(p.name, p.rev), absent(p.line.tombstone(t.ID))}
	then := []clientv3.Op{clientv3.OpDelete(p.name)}
	if e.Mark != "" {
		ifs = append(ifs, p.line.claims().noneBefore(p.rev))
		then = append(then, clientv3.OpPut(p.line.mark(), encode(newMark(t, e))))
	}
	answer, err := b.etcd.Txn(withoutDeadline{ctx}).If(ifs...).Then(then...).Commit()
	if err != nil || answer.Succeeded {
		return true, err
	}
	// These reads are rare. In the transaction they would go through the log with each Leave.
	answer, err = b.etcd.Txn(ctx).Then(
		clientv3.OpGet(p.name), clientv3.OpGet(p.line.tombstone(t.ID)), clientv3.OpGet(p.line.mark())).Commit()
	if err != nil {
		return true, err
	}
	own, grave, mark := withID(found(answer, 0), t.ID), first(found(answer, 1)), first(found(answer, 2))
	if own != nil && grave == nil {
		return false, nil
	}
	return true, absentFor(t.ID, grave, mark)
}

// absentFor answers a Leave of a claim that is not in line: nil if the claim wrote the
// mark, because then this Leave is a repeat.
func absentFor(id string, grave, mark *keyValue) error {
	if mark != nil {
		var m markRecord
		if err := decode(mark, &m); err != nil {
			return err
		}
		if m.Writer == id {
			return nil
		}
	}
	return goneFor(grave)
}

// readAndLeave reads the position, and leaves if nothing has changed since. It reports
// false if something has.
func (b *Backend) readAndLeave(ctx context.Context, t *driver.Ticket, e driver.Exit) (done bool, err error) {
	p, err := b.locate(ctx, &t.Claim, revisionOf(t.Token))
	alive := err == nil
	var result error
	if !alive {
		if !driver.Gone(err) {
			return true, err
		}
		result = absentFor(t.ID, p.tombstone, p.mark)
		if t.Token != 0 {
			return true, result
		}
	}
	w, err := b.exitWrites(ctx, t, e, p, alive)
	if err != nil {
		return true, err
	}
	if len(w.ops) == 0 {
		return true, result
	}
	ifs := []clientv3.Cmp{p.unchangedOwn(), unchanged(p.line.tombstone(t.ID), p.tombstone)}
	answer, err := b.etcd.Txn(ctx).If(ifs...).Then(w.ops...).Commit()
	switch {
	case err != nil:
		if leaseEnded(err) && w.tombstones != nil {
			b.leases.forget(w.tombstones.id)
		}
		return true, err // what lingers may do so on its lease, which ends by itself
	case answer.Succeeded:
		return true, result
	}
	if w.lingers != nil {
		b.revoke(w.lingers)
	}
	return false, nil
}

// unchangedOwn compares that the claim's key is as it was read. If its name is not known,
// no claim may have joined since: it could be the one.
func (p *position) unchangedOwn() clientv3.Cmp {
	if p.name == "" {
		return p.line.claims().noneAfter(p.at)
	}
	return unchanged(p.name, p.under)
}

// exitWrites are the writes of a Leave, and the leases that they need.
type exitWrites struct {
	ops        []clientv3.Op
	lingers    *lease // granted for this Leave
	tombstones *lease // shared
}

// exitWrites decides what a Leave writes. A Leave without a token leaves a tombstone,
// because an Enter of the ID may still arrive.
func (b *Backend) exitWrites(ctx context.Context, t *driver.Ticket, e driver.Exit, p *position, alive bool,
) (w exitWrites, err error) {
	if alive && e.Mark != "" && p.granted {
		w.ops = append(w.ops, clientv3.OpPut(p.line.mark(), encode(newMark(t, e))))
	}
	keepOut := t.TTL // at least
	switch {
	case alive && e.Linger > 0:
		if err := b.lingerWrites(ctx, t, e, p, &w); err != nil {
			return w, err
		}
		keepOut = max(keepOut, w.lingers.ttl)
	case alive:
		w.ops = append(w.ops, clientv3.OpDelete(p.name))
	}
	if t.Token != 0 {
		return w, nil
	}
	if w.tombstones, err = b.tombstoneLease(ctx, p, keepOut); err != nil || w.tombstones == nil {
		return w, err
	}
	value := encode(tombstone{Format: format})
	if p.tombstone != nil {
		value = string(p.tombstone.Value) // the reason that an operator wrote stays
	}
	w.ops = append(w.ops, clientv3.OpPut(p.line.tombstone(t.ID), value, clientv3.WithLease(w.tombstones.id)))
	return w, nil
}

// lingerWrites puts the claim on a lease of its own, which is never renewed.
func (b *Backend) lingerWrites(ctx context.Context, t *driver.Ticket, e driver.Exit, p *position, w *exitWrites) error {
	var r record
	if err := decode(p.own, &r); err != nil {
		return err
	}
	l, err := b.grant(ctx, wholeSeconds(e.Linger))
	if err != nil {
		return err
	}
	w.lingers = l
	r.Granted, r.Lingering = true, true
	r.TTL, r.Since = int64(l.ttl/time.Second), time.Now().UnixMilli()
	w.ops = append(w.ops, clientv3.OpPut(p.name, encode(r), clientv3.WithLease(l.id)))
	if t.Token != 0 { // the tombstone ends together with the claim: one lease, one revocation
		text := encode(tombstone{Format: format})
		w.ops = append(w.ops, clientv3.OpPut(p.line.tombstone(t.ID), text, clientv3.WithLease(l.id)))
	}
	return nil
}

// tombstoneLease is a lease that keeps an ID out for ttl at the least. It is nil if the
// ID is kept out for longer already.
func (b *Backend) tombstoneLease(ctx context.Context, p *position, ttl time.Duration) (*lease, error) {
	if p.tombstone != nil {
		left, err := b.etcd.TimeToLive(ctx, clientv3.LeaseID(p.tombstone.Lease))
		if err != nil {
			return nil, err
		}
		if left.TTL > wholeSeconds(ttl) {
			return nil, nil
		}
	}
	return b.leaseOf(ctx, leaseKind{seconds: wholeSeconds(ttl), tombstones: true})
}

// revoke ends a lease that was not used after all. If that fails, it ends by itself.
func (b *Backend) revoke(l *lease) {
	ctx, cancel := context.WithTimeout(b.ctx, closeTimeout)
	defer cancel()
	_, _ = b.etcd.Revoke(ctx, l.id)
}
