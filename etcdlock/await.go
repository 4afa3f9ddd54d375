package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// maxAwait is how long Await waits before it is called again, and reads the line again.
const maxAwait = time.Second

// Await reads the line. If the claim is not granted, it watches what blocks the claim, and
// reads the line again when enough has left. It returns after a second at the latest.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (now driver.Ticket, err error) {
	err = b.call(ctx, reply.Write, "waiting in the line of", t.Key, func(ctx context.Context) error {
		p, err := b.check(ctx, &t, b.revision(&t))
		if err == nil && !p.granted {
			p, err = b.watch(ctx, &t, p)
		}
		if err == nil {
			now, err = p.ticket(&t.Claim)
			now.Left = t.Left
		}
		return err
	})
	if driver.Gone(err) {
		b.keys.release(driverutil.Ref(t.Key, t.ID))
	}
	return now, err
}

// watch waits until enough claims that block p have left, or for maxAwait, and returns the
// position then.
//
// A writer watches the claim before it. A reader watches the nearest writer before it: the
// claim before a reader may be a reader that stays. A claim on a semaphore watches all
// claims, and adds up the weights of those that leave.
//
// The watch begins with the next revision, so the line is read again when the watch is
// open. From an older revision the server would tell nothing for up to 100 ms.
func (b *Backend) watch(ctx context.Context, t *driver.Ticket, p *position) (*position, error) {
	// Watches of one context share a stream. The contexts of calls may carry the callers'
	// metadata, and each would get a stream of its own.
	watching, cancel := context.WithTimeout(b.ctx, maxAwait)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	watched, opts := p.blocker, []clientv3.OpOption{clientv3.WithCreatedNotify(), clientv3.WithFilterPut()}
	from := watched
	if p.weights != nil {
		from, opts = p.line.permits().from, append(opts, clientv3.WithRange(p.line.permits().end))
	}
	for e := range b.etcd.Watch(watching, from, opts...) {
		if !e.Created && !p.makesRoom(e.Events) {
			continue
		}
		var err error
		p, err = b.check(ctx, t, p.rev)
		if err != nil || p.granted || !e.Created || p.blocker != watched {
			return p, err
		}
	}
	<-watching.Done() // a watch may break early, if its member has lost the leader
	return p, cmp.Or(ctx.Err(), b.ctx.Err())
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
		if done, err := b.rewrite(ctx, p, &r, clientv3.WithIgnoreLease()); done || err != nil {
			return p, cmp.Or(err, b.checkLease(p))
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

// makesRoom reports whether these deleted keys may be enough for a grant.
func (p *position) makesRoom(deleted []*clientv3.Event) bool {
	for _, e := range deleted {
		p.excess -= p.weights[string(e.Kv.Key)]
		delete(p.weights, string(e.Kv.Key))
	}
	return len(deleted) > 0 && p.excess <= 0 // a writer or reader has no excess
}
