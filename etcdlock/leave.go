package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// Leave takes the claim of t out of its line. It costs one delete for a ticket with its
// token, or one transaction for that and the mark of a mutex, and another to say why if
// the claim is not in line; what lingers or lays an id to rest costs two and a lease.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	ctx, end, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	p := place{t.Key, t.ID}
	b.drop(p)
	while := max(e.Linger, t.TTL) + forgotten
	if e.Linger > 0 {
		b.slots.keep(p, while) // nobody deletes it unseen from now on
	}
	err = b.leave(ctx, &t, e)
	switch {
	case driver.Gone(err):
		b.slots.gone(p, while)
	case err != nil || e.Linger > 0:
		b.slots.keep(p, while)
	default:
		b.slots.free(p)
	}
	return b.failed(ctx, "leaving the line of", t.Key, err)
}

// forgotten is how long after its lease a key may be there.
const forgotten = 10 * time.Second

func (b *Backend) leave(ctx context.Context, t *driver.Ticket, e driver.Exit) error {
	if t.Token != 0 && e.Linger == 0 && (e.Mark == "" || classOf(&t.Claim) == classWriter) {
		done, err := b.leaveAtOnce(ctx, t, e)
		if done || err != nil {
			return err
		}
	}
	for range mostTries {
		done, err := b.leaveWith(ctx, t, e)
		if leaseEnded(err) {
			continue
		}
		if done || err != nil {
			return err
		}
	}
	return errRaced
}

// leaveAtOnce deletes the claim, and writes the mark if nobody stands before it. It returns
// false if that is not so and somebody has to look closer.
func (b *Backend) leaveAtOnce(ctx context.Context, t *driver.Ticket, e driver.Exit) (done bool, err error) {
	p, line := place{t.Key, t.ID}, b.line(t.Key)
	if revisionOf(t.Token) == 0 { // no claim has this token
		return false, nil
	}
	name, left := "", false
	if e.Mark == "" {
		name = b.slots.parting(p)
	}
	if name != "" {
		left, err = b.delete(ctx, name, t.ID)
	} else {
		if name = b.slots.name(p); name == "" {
			return false, nil
		}
		left, err = b.deleteIf(ctx, name, t, e)
	}
	if left || err != nil {
		return true, err
	}
	// The reads are seldom needed, and would go through the log of the members with each Leave.
	answer, err := b.etcd.Txn(ctx).Then(clientv3.OpGet(name), clientv3.OpGet(line.rest(t.ID)), clientv3.OpGet(line.mark())).Commit()
	if err != nil {
		return true, err
	}
	own, rest := ownIn(answer, 0, t.ID), one(answer, 1)
	if own != nil && rest == nil {
		return false, nil
	}
	return true, absentFor(t.ID, rest, one(answer, 2))
}

// delete deletes what has the name of a claim, and returns whether it was that claim. It takes
// a thirtieth of a free lock's time less than a transaction that compares; slots say when it
// may be sent.
func (b *Backend) delete(ctx context.Context, name, id string) (bool, error) {
	answer, err := b.etcd.Delete(timeless{ctx}, name, clientv3.WithPrevKV())
	if err != nil {
		return false, err // it may still arrive
	}
	b.slots.parted(name)
	return pick(answer.PrevKvs, id) != nil, nil
}

// deleteIf deletes the claim if it is the one that the token tells of, and with a mark if
// nobody stands before it.
func (b *Backend) deleteIf(ctx context.Context, name string, t *driver.Ticket, e driver.Exit) (bool, error) {
	line, rev := b.line(t.Key), revisionOf(t.Token)
	ifs := []clientv3.Cmp{created(name, rev), absent(line.rest(t.ID))}
	then := []clientv3.Op{clientv3.OpDelete(name)}
	if e.Mark != "" {
		ifs = append(ifs, line.claims().since(rev))
		then = append(then, clientv3.OpPut(line.mark(), encode(newMark(t, e))))
	}
	answer, err := b.etcd.Txn(timeless{ctx}).If(ifs...).Then(then...).Commit()
	return err == nil && answer.Succeeded, err
}

func newMark(t *driver.Ticket, e driver.Exit) markRecord {
	return markRecord{Format: format, Mark: []byte(e.Mark), Writer: t.ID}
}

// absentFor answers a Leave of a claim that is not in line: nil if it is the one that
// wrote the mark, for then this Leave is a repeat.
func absentFor(id string, rest, mark *keyValue) error {
	if mark != nil {
		var m markRecord
		if err := decode(mark, &m); err != nil {
			return err
		}
		if m.Writer == id {
			return nil
		}
	}
	return goneFor(rest)
}

// leaveWith looks first and then leaves, if all is still as it was seen. It returns
// false if it is not.
func (b *Backend) leaveWith(ctx context.Context, t *driver.Ticket, e driver.Exit) (done bool, err error) {
	s, err := b.stand(ctx, &t.Claim, revisionOf(t.Token))
	var result error
	if err != nil {
		if !driver.Gone(err) {
			return true, err
		}
		result = absentFor(t.ID, s.rest, s.mark)
		if t.Token != 0 {
			return true, result
		}
	}
	alive := err == nil
	ifs := []clientv3.Cmp{unchanged(s.name, s.under), unchanged(s.line.rest(t.ID), s.rest)}
	if s.name == "" {
		ifs[0] = s.line.claims().until(s.at) // who has joined since may be the one
	}
	var then []clientv3.Op
	if alive && e.Mark != "" && s.granted {
		then = append(then, clientv3.OpPut(s.line.mark(), encode(newMark(t, e))))
	}
	last := t.TTL // of the tombstone
	var lingers, rests *lease
	switch {
	case alive && e.Linger > 0:
		var r record
		if err := decode(s.own, &r); err != nil {
			return true, err
		}
		l, err := b.grant(ctx, seconds(e.Linger))
		if err != nil {
			return true, err
		}
		lingers = l
		r.Granted, r.Lingering = true, true
		r.TTL, r.Since = int64(l.ttl/time.Second), time.Now().UnixMilli()
		then = append(then, clientv3.OpPut(s.name, encode(r), clientv3.WithLease(l.id)))
		if t.Token != 0 {
			// It ends together with the claim: one lease, one revocation.
			then = append(then, clientv3.OpPut(s.line.rest(t.ID), encode(restRecord{Format: format}), clientv3.WithLease(l.id)))
		}
		last = max(last, l.ttl)
	case alive:
		then = append(then, clientv3.OpDelete(s.name))
	}
	if t.Token == 0 {
		if rests, err = b.restFor(ctx, s, last); err != nil {
			return true, err
		}
		if rests != nil {
			value := encode(restRecord{Format: format})
			if s.rest != nil {
				value = string(s.rest.Value) // what an operator wrote stays the reason
			}
			then = append(then, clientv3.OpPut(s.line.rest(t.ID), value, clientv3.WithLease(rests.id)))
		}
	}
	if len(then) == 0 {
		return true, result
	}
	answer, err := b.etcd.Txn(ctx).If(ifs...).Then(then...).Commit()
	if leaseEnded(err) && rests != nil {
		b.forget(rests.id)
	}
	if err != nil {
		return true, err // what lingers may do so on its lease: that ends by itself
	}
	if answer.Succeeded {
		return true, result
	}
	if lingers != nil {
		b.waste(lingers)
	}
	return false, nil
}

// restFor is the lease on which to keep the id of a claim out for ttl at the least.
// It is nil if the id is kept out for longer already.
func (b *Backend) restFor(ctx context.Context, s *standing, ttl time.Duration) (*lease, error) {
	if s.rest != nil {
		left, err := b.etcd.TimeToLive(ctx, clientv3.LeaseID(s.rest.Lease))
		if err != nil {
			return nil, err
		}
		if left.TTL > seconds(ttl) {
			return nil, nil
		}
	}
	return b.shared(ctx, class{seconds: seconds(ttl), rest: true})
}

// waste revokes a lease that was not used after all, or leaves it to end by itself.
func (b *Backend) waste(l *lease) {
	ctx, cancel := context.WithTimeout(b.ctx, lastWords)
	defer cancel()
	_, _ = b.etcd.Revoke(ctx, l.id)
}
