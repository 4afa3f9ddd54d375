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

// place names a claim.
type place struct{ key, id string }

// vigil watches what stands in the way of a waiting claim. It lasts from one Await
// to the next, so that waiting costs one watch however long it is. It belongs to the
// Await that took it, or to Backend.vigils between two of them.
type vigil struct {
	keys   span             // watched; a span without an end is one key
	before map[string]int64 // whose leaving counts, and how much; nil if any does
	excess int64            // how much must leave
	from   int64            // the first revision that has not been seen

	events clientv3.WatchChan // nil if it is not open
	cancel context.CancelFunc
	faults int // watches in a row that broke
}

// vigil is what a claim that stands like this has to watch: a writer the claim
// before it, a reader the nearest writer before it, for its predecessor may be a
// reader that stays; a claim on a semaphore all before it.
func (s *standing) vigil() *vigil {
	if s.before != nil {
		return &vigil{keys: s.line.permits(), before: s.before, excess: s.excess, from: s.at + 1}
	}
	return &vigil{keys: span{from: s.blocker}, from: s.at + 1}
}

// keep stores v until the next Await of the claim.
func (b *Backend) keep(p place, v *vigil) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.vigils[p]
	if b.closed {
		v.close()
		return
	}
	b.vigils[p] = v
	if old != nil && old != v {
		old.close()
	}
}

// take hands out what was kept, or nil.
func (b *Backend) take(p place) *vigil {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.vigils[p]
	delete(b.vigils, p)
	return v
}

// drop ends the vigil of a claim that does not wait any more.
func (b *Backend) drop(p place) { b.take(p).close() }

func (v *vigil) close() {
	if v != nil && v.cancel != nil {
		v.cancel()
		v.cancel, v.events = nil, nil
	}
}

// Await returns when a claim that stands in the way has left, or after a second. It
// reads the line again before it returns.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	ctx, end, err := b.begin(ctx)
	if err != nil {
		return driver.Ticket{}, err
	}
	defer end()
	p := place{t.Key, t.ID}
	v := b.take(p)
	s, err := b.await(ctx, &t, &v)
	if err == nil && !s.granted {
		n := s.vigil()
		if v != nil && v.events != nil && v.keys == n.keys {
			n = v // it has missed nothing
		} else {
			n.faults = v.broken()
			v.close()
		}
		b.keep(p, n)
	} else {
		v.close()
	}
	if err != nil {
		if driver.Gone(err) {
			b.slots.gone(p, t.TTL+forgotten)
		}
		return driver.Ticket{}, b.failed(ctx, "waiting in the line of", t.Key, err)
	}
	now, err := s.ticket(&t.Claim)
	now.Left = t.Left
	return now, err
}

func (v *vigil) broken() int {
	if v == nil {
		return 0
	}
	return v.faults
}

// await waits with the vigil at v, which it makes if there is none, and says where
// the claim stands then.
func (b *Backend) await(ctx context.Context, t *driver.Ticket, v **vigil) (*standing, error) {
	rev := revisionOf(t.Token)
	if *v == nil {
		s, err := b.standGranted(ctx, t, rev)
		if err != nil || s.granted {
			return s, err
		}
		*v, rev = s.vigil(), s.rev
	}
	free, err := (*v).wait(ctx, b)
	if err != nil {
		return nil, err
	}
	if free && rev > 0 && classOf(&t.Claim) == classWriter {
		return b.takeOver(ctx, t, rev)
	}
	return b.standGranted(ctx, t, rev)
}

// wait returns true when what stood in the way has left, and false after maxAwait or
// when the watch broke: then nobody knows.
func (v *vigil) wait(ctx context.Context, b *Backend) (free bool, err error) {
	timer := time.NewTimer(maxAwait)
	defer timer.Stop()
	if v.events == nil {
		v.open(ctx, b)
	}
	for {
		select {
		case e, ok := <-v.events:
			if !ok || e.Err() != nil {
				// Compacted, no leader, closed: the line is read again, and watched from
				// there. A watch that breaks each time must not become a loop.
				v.close()
				v.faults++
				if v.faults > 1 {
					pause := time.NewTimer(min(maxAwait, 10*time.Millisecond<<min(v.faults, 10)))
					defer pause.Stop()
					select {
					case <-pause.C:
					case <-ctx.Done():
					}
				}
				return false, ctx.Err()
			}
			v.faults = 0
			if v.leaves(e) {
				return true, nil
			}
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// open starts the watch. That takes a round trip, during which it ends with ctx; then
// it goes on until it is closed, or the Backend is.
func (v *vigil) open(ctx context.Context, b *Backend) {
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(b.ctx))
	v.cancel = cancel
	stop := context.AfterFunc(ctx, cancel)
	late := time.AfterFunc(maxAwait, cancel)
	opts := []clientv3.OpOption{clientv3.WithRev(v.from), clientv3.WithFilterPut()}
	if v.keys.to != "" {
		opts = append(opts, clientv3.WithRange(v.keys.to))
	}
	v.events = b.etcd.Watch(watching, v.keys.from, opts...)
	late.Stop()
	stop()
}

// leaves notes who has left, and reports whether that may be enough.
func (v *vigil) leaves(e clientv3.WatchResponse) bool {
	for _, event := range e.Events {
		if event.Type != clientv3.EventTypeDelete {
			continue
		}
		if v.before == nil {
			return true
		}
		name := string(event.Kv.Key)
		v.excess -= v.before[name]
		delete(v.before, name)
		if v.excess <= 0 {
			return true
		}
	}
	return false
}

// takeOver grants a writer whose predecessor has left. The comparison is the check
// that belongs after every wait: the claim is there, as it was, and nobody stands
// before it. The put tells others since when it is held.
func (b *Backend) takeOver(ctx context.Context, t *driver.Ticket, rev int64) (*standing, error) {
	s := &standing{backend: b, line: b.line(t.Key), rev: rev}
	if s.name = b.slots.name(place{t.Key, t.ID}); s.name == "" {
		return b.standGranted(ctx, t, rev) // another Backend put it
	}
	answer, err := b.etcd.Txn(ctx).
		If(created(s.name, rev), absent(s.line.rest(t.ID)), s.line.claims().since(rev)).
		Then(
			clientv3.OpGet(s.name),
			clientv3.OpGet(s.line.mark()),
			clientv3.OpPut(s.name, encode(heldRecord(t)), clientv3.WithIgnoreLease()),
		).
		Else(s.line.looks(&t.Claim, s.name, rev)...).
		Commit()
	if err != nil {
		return nil, err
	}
	if !answer.Succeeded {
		if err := s.seen(&t.Claim, answer); err != nil {
			return s, err
		}
		if s.own.CreateRevision != rev || s.granted {
			return b.standGranted(ctx, t, s.own.CreateRevision)
		}
		return s, nil
	}
	s.own, s.mark, s.granted = one(answer, 0), one(answer, 1), true
	return s, b.lasts(s)
}

// heldRecord describes the claim of t, which is granted now.
func heldRecord(t *driver.Ticket) record {
	r := newRecord(&t.Claim, t.TTL)
	r.Granted = true
	return r
}

// standGranted is stand. If that shows the grant for the first time, it is noted for
// others to see since when.
func (b *Backend) standGranted(ctx context.Context, t *driver.Ticket, rev int64) (*standing, error) {
	for range mostTries {
		s, err := b.stand(ctx, &t.Claim, rev)
		if err != nil || !s.granted {
			return s, err
		}
		var r record
		if err := decode(s.own, &r); err != nil {
			return s, err
		}
		if r.Granted {
			return s, b.lasts(s)
		}
		r.Granted, r.Since = true, time.Now().UnixMilli()
		answer, err := b.etcd.Txn(ctx).
			If(unchanged(s.name, s.own), absent(s.line.rest(t.ID))).
			Then(clientv3.OpPut(s.name, encode(r), clientv3.WithIgnoreLease())).
			Commit()
		if err != nil {
			return s, err
		}
		if answer.Succeeded {
			return s, b.lasts(s)
		}
		rev = s.rev
	}
	return nil, errRaced
}

// errOverdue says that a claim was found in line, but not renewed in time.
var errOverdue = errors.New("its lease is over, though the server has not ended it yet")

// lasts makes sure that a grant's lease has time left by our own count: the server
// ends leases late.
func (b *Backend) lasts(s *standing) error {
	if l := b.ours(clientv3.LeaseID(s.own.Lease)); l != nil && l.left(time.Now()) <= 0 {
		return errOverdue
	}
	return nil
}
