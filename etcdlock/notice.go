package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// A claim under notice is on a lease of its own that nobody keeps alive: it lasts for the notice,
// and then for the lock-delay in the record. While more than the lock-delay is left, the tombstone
// of the claim only says what its holder will be told. After that the claim lingers.

// noticeIn returns the notice that err tells of, or nil.
func noticeIn(err error) *driver.GoneError {
	var gone driver.GoneError
	if errors.As(err, &gone) && gone.Left > 0 {
		return &gone
	}
	return nil
}

// wholeDelay is a lock-delay as etcd counts it.
func (r *record) wholeDelay() time.Duration {
	return (time.Duration(r.LockDelay) + time.Second - 1).Truncate(time.Second)
}

// asOf returns how long r may last of a lease with so much left. It ends the notice of r if that is
// over.
func (r *record) asOf(left time.Duration) time.Duration {
	if !r.Noticed {
		return left
	}
	if notice := left - r.wholeDelay(); left > 0 && notice >= 0 {
		return max(notice, time.Millisecond)
	}
	r.Noticed, r.Lingering = false, true
	return left
}

// reasonIn returns the reason of the notice that r is under: it is in the tombstone, which is one of keys.
func (r *record) reasonIn(l line, keys []*keyValue) string {
	if !r.Noticed {
		return ""
	}
	i := slices.IndexFunc(keys, func(kv *keyValue) bool { return string(kv.Key) == l.tombstone(r.ID) })
	if i < 0 {
		return ""
	}
	var gone driver.GoneError
	errors.As(goneFor(keys[i]), &gone)
	return gone.Reason
}

// leaseLeft asks how long a lease lasts. etcd tells whole seconds, rounded down.
func (b *Backend) leaseLeft(ctx context.Context, id int64) (time.Duration, error) {
	answer, err := b.etcd.TimeToLive(ctx, clientv3.LeaseID(id))
	if err != nil || answer.TTL < 0 {
		return 0, err
	}
	return cmp.Or(time.Duration(answer.TTL)*time.Second, time.Millisecond), nil
}

// findNotice notes that the claim of p is under notice, if it is.
func (b *Backend) findNotice(ctx context.Context, p *position) error {
	if p.own == nil || p.tombstone == nil {
		return nil
	}
	var r record
	if err := decode(p.own, &r); err != nil || !r.Noticed {
		return err
	}
	left, err := b.leaseLeft(ctx, p.own.Lease)
	if err != nil {
		return err
	}
	if left = r.asOf(left); r.Noticed {
		var gone driver.GoneError
		if !errors.As(goneFor(p.tombstone), &gone) {
			return goneFor(p.tombstone)
		}
		gone.Left, p.notice = left, &gone
	}
	return nil
}

// ended reports whether the claim of p has been ended.
func (p *position) ended() bool { return p.tombstone != nil && p.notice == nil }

// keepNotice puts the tombstone of p's claim for an ID that it gets.
func (p *position) keepNotice(id string) clientv3.Op {
	return clientv3.OpPut(p.line.tombstone(id), string(p.tombstone.Value),
		clientv3.WithLease(clientv3.LeaseID(p.tombstone.Lease)))
}

// readNotice reads what is left of a notice that was given before.
func (w *breakWrites) readNotice(ctx context.Context) error {
	if !w.r.Noticed {
		return nil
	}
	left, err := w.b.leaseLeft(ctx, w.own.Lease)
	if left = w.r.asOf(left); w.r.Noticed {
		w.notice = left
	}
	return err
}

// delay is for how long the key stays closed after a Break with a delay of d.
func (w *breakWrites) delay(d time.Duration) time.Duration {
	if w.r.Noticed && d > 0 {
		return max(d, time.Duration(w.r.LockDelay)) // which was promised
	}
	return cmp.Or(d, time.Duration(w.r.LockDelay))
}

// giveNotice has the claim end after notice, and linger for delay then. The server rounds down
// what it tells of a lease: so the claim lasts a second longer, and its holder is never told of
// less than it was promised.
func (w *breakWrites) giveNotice(ctx context.Context, notice, delay time.Duration) error {
	w.r.Granted, w.r.Noticed = true, true
	if w.notice > 0 {
		delay = max(delay, time.Duration(w.r.LockDelay))
	}
	w.r.LockDelay = driverutil.Duration(delay)
	lasts := max(notice, w.notice) + time.Second + w.r.wholeDelay()
	l, err := w.b.grant(ctx, wholeSeconds(lasts))
	if err != nil {
		return err
	}
	w.keptOut = max(w.keptOut, l.ttl+w.r.ttl())
	w.end = clientv3.OpPut(string(w.own.Key), encode(w.r), clientv3.WithLease(l.id))
	return nil
}
