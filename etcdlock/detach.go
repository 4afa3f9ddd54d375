package etcdlock

import (
	"cmp"
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// A claim that was detached or adopted has a lease of its own: the other claims of a process
// do not keep it alive, and so it ends by itself if nobody has got the answer. Its key keeps
// its name and its create revision, which are its place in line and its token.

var _ driver.Detacher = (*Backend)(nil)

var adoptedTombstone = tombstone{Format: format, Reason: driverutil.Adopted.Reason}

// Detach moves the claim of t to a lease of its own. It costs two round trips: a read and a
// grant at the same time, and a transaction.
func (b *Backend) Detach(ctx context.Context, t driver.Ticket) error {
	b.keys.detach(driverutil.Ref(t.Key, t.ID))
	err := b.call(ctx, reply.Write, "detaching the holder of", t.Key, func(ctx context.Context) error {
		for range maxAttempts {
			p, l, err := b.readAndGrant(ctx, &t, t.TTL)
			moved := err == nil && p.notice != nil // it has a lease of its own already
			if err == nil && !moved {
				moved, err = b.moveToLease(ctx, p, l)
			}
			if err != nil && !leaseEnded(err) || moved {
				return err
			}
		}
		return errRaced
	})
	if err == nil || driver.Gone(err) {
		b.keys.release(driverutil.Ref(t.Key, t.ID))
	}
	return err
}

// Adopt writes by into the record of t's claim, and puts the claim and a tombstone of t.ID on
// a new lease. It costs two round trips, as Detach does.
func (b *Backend) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (got driver.Ticket, err error) {
	err = b.call(ctx, reply.Write, "adopting the holder of", t.Key, func(ctx context.Context) error {
		if err := by.Validate(b.Info()); err != nil {
			return err
		}
		for range maxAttempts {
			p, l, err := b.readAndGrant(ctx, &t, by.TTL)
			if driver.Gone(err) {
				got, err = b.adoptAgain(ctx, &t, &by, err)
				return err
			}
			adopted := false
			if err == nil {
				got, adopted, err = b.adopt(ctx, &t, &by, p, l)
			}
			if err != nil && !leaseEnded(err) || adopted {
				return err
			}
		}
		return errRaced
	})
	return got, err
}

// readAndGrant reads the position of t's claim, which must be granted, and asks for a lease
// that no other claim has. If the claim is gone, the lease ends by itself.
func (b *Backend) readAndGrant(ctx context.Context, t *driver.Ticket, ttl time.Duration) (*position, *lease, error) {
	var p *position
	var l *lease
	var unread, ungranted error
	parallel(2, func(i int) {
		if i == 0 {
			p, unread = b.locate(ctx, &t.Claim, b.revision(t))
		} else {
			l, ungranted = b.grant(ctx, wholeSeconds(ttl))
		}
	})
	if unread == nil && !p.granted {
		unread = errWaits
	}
	return p, l, cmp.Or(unread, ungranted)
}

// adopt is one attempt of Adopt. It reports false if the claim has changed since p was read.
func (b *Backend) adopt(ctx context.Context, t *driver.Ticket, by *driver.Claim, p *position, l *lease,
) (got driver.Ticket, adopted bool, err error) {
	var r record
	if err := decode(p.own, &r); err != nil {
		return got, false, err
	}
	r.ID, r.Owner, r.Note, r.Trace = by.ID, by.Owner, by.Note, by.Trace
	old := p.line.tombstone(t.ID)
	puts := []clientv3.Op{clientv3.OpPut(old, encode(adoptedTombstone), clientv3.WithLease(l.id))}
	left := l.ttl
	if p.notice == nil {
		r.LockDelay, r.TTL = driverutil.Duration(by.LockDelay), int64(l.ttl/time.Second)
		puts = append(puts, clientv3.OpPut(p.name, encode(r), clientv3.WithLease(l.id)))
	} else {
		left = p.notice.Left
		puts = append(puts, clientv3.OpPut(p.name, encode(r), clientv3.WithIgnoreLease()), p.keepNotice(by.ID))
	}
	answer, err := b.etcd.Txn(ctx).
		If(unchanged(p.name, p.own), unchanged(old, p.tombstone)).
		Then(puts...).
		Commit()
	if err != nil || !answer.Succeeded {
		return got, false, err
	}
	b.keys.adopt(driverutil.Ref(by.Key, by.ID), p.name)
	c := *by
	c.Span = r.Span
	got, err = entered(&c, p, l.ttl, left)
	return got, true, err
}

// adoptAgain answers an Adopt of a claim that is gone. If an earlier Adopt of by has arrived,
// it starts the lease again.
func (b *Backend) adoptAgain(
	ctx context.Context, t *driver.Ticket, by *driver.Claim, gone error,
) (driver.Ticket, error) {
	p, err := b.locate(ctx, by, b.revision(t))
	if driver.Gone(err) {
		return driver.Ticket{}, gone
	}
	var r record
	if err == nil {
		err = decode(p.own, &r)
	}
	if err != nil {
		return driver.Ticket{}, err
	}
	b.keys.adopt(driverutil.Ref(by.Key, by.ID), p.name)
	c := *by
	c.Span = r.Span
	return b.enterAgain(ctx, &c, p)
}
