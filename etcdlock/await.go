package etcdlock

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// maxAwait is how long Await waits before it reads the line again.
const maxAwait = time.Second

// Await returns when a claim that blocks this one has left, or after a second. It reads
// the line again before it returns.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	ctx, end, err := b.begin(ctx)
	if err != nil {
		return driver.Ticket{}, err
	}
	defer end()
	w := b.watches.take(t.Ref())
	p, w, err := b.await(ctx, &t, w)
	if err != nil {
		w.close()
		if driver.Gone(err) {
			b.keys.notInLine(t.Ref(), t.TTL+grace)
		}
		return driver.Ticket{}, b.failed(ctx, "waiting in the line of", t.Key, err)
	}
	if p.granted {
		w.close()
	} else {
		b.watches.put(t.Ref(), p.nextWatch(w))
	}
	now, err := p.ticket(&t.Claim)
	now.Left = t.Left
	return now, err
}

// nextWatch returns w if it is open and watches the right keys: it has missed nothing.
func (p *position) nextWatch(w *watch) *watch {
	next := p.watch()
	if w == nil {
		return next
	}
	if w.events != nil && w.keys == next.keys {
		return w
	}
	w.close()
	next.failures = w.failures
	return next
}

// await waits with w, which it makes if it is nil, and reads the position again. It
// returns the watch that it used.
func (b *Backend) await(ctx context.Context, t *driver.Ticket, w *watch) (*position, *watch, error) {
	rev := revisionOf(t.Token)
	if w == nil {
		p, err := b.check(ctx, t, rev)
		if err != nil || p.granted {
			return p, nil, err
		}
		w, rev = p.watch(), p.rev
	}
	free, err := w.wait(ctx, b)
	if err != nil {
		return nil, w, err
	}
	var p *position
	if free && rev > 0 && classOf(&t.Claim) == classWriter {
		p, err = b.takeOver(ctx, t, rev)
	} else {
		p, err = b.check(ctx, t, rev)
	}
	return p, w, err
}

// takeOver grants a writer when the claim before it has left. In one transaction it
// compares that the claim's key is the one that Enter made and that no older claim is in
// line, and writes for people since when the lock is held.
func (b *Backend) takeOver(ctx context.Context, t *driver.Ticket, rev int64) (*position, error) {
	p := b.positionOf(&t.Claim, rev)
	if p.name == "" {
		return b.check(ctx, t, rev) // another Backend put it
	}
	r := newRecord(&t.Claim, t.TTL)
	r.Granted = true
	answer, err := b.etcd.Txn(ctx).
		If(createdAt(p.name, rev), absent(p.line.tombstone(t.ID)), p.line.claims().noneBefore(rev)).
		Then(
			clientv3.OpGet(p.name),
			clientv3.OpGet(p.line.mark()),
			clientv3.OpPut(p.name, encode(r), clientv3.WithIgnoreLease()),
		).
		Else(p.reads(&t.Claim)...).
		Commit()
	if err != nil {
		return nil, err
	}
	if answer.Succeeded {
		p.own, p.mark, p.granted = first(found(answer, 0)), first(found(answer, 1)), true
		return p, b.checkLease(p)
	}
	if err := p.fill(&t.Claim, answer); err != nil {
		return p, err
	}
	if p.own.CreateRevision != rev || p.granted {
		return b.check(ctx, t, p.own.CreateRevision)
	}
	return p, nil
}

// check reads the position. If it shows the grant for the first time, check writes for
// people since when the lock is held.
func (b *Backend) check(ctx context.Context, t *driver.Ticket, rev int64) (*position, error) {
	for range maxAttempts {
		p, err := b.locate(ctx, &t.Claim, rev)
		if err != nil || !p.granted {
			return p, err
		}
		var r record
		if err := decode(p.own, &r); err != nil {
			return p, err
		}
		if r.Granted {
			return p, b.checkLease(p)
		}
		r.Granted, r.Since = true, time.Now().UnixMilli()
		answer, err := b.etcd.Txn(ctx).
			If(unchanged(p.name, p.own), absent(p.line.tombstone(t.ID))).
			Then(clientv3.OpPut(p.name, encode(r), clientv3.WithIgnoreLease())).
			Commit()
		if err != nil {
			return p, err
		}
		if answer.Succeeded {
			return p, b.checkLease(p)
		}
		rev = p.rev
	}
	return nil, errRaced
}

// errOverdue says that a claim is in line, but was not renewed in time.
var errOverdue = errors.New("its lease is over, though the server has not ended it yet")

// checkLease refuses a grant whose lease is over by our own count: the server ends
// leases late.
func (b *Backend) checkLease(p *position) error {
	if l := b.leases.find(clientv3.LeaseID(p.own.Lease)); l != nil && l.left(time.Now()) <= 0 {
		return errOverdue
	}
	return nil
}
