// Package etcdmutex takes locks of etcd's own package go.etcd.io/etcd/client/v3/concurrency: a Mutex is a key below
// its prefix for each session, and the oldest key holds it. With bridge.Foreign it lets fencelock exclude programs
// that still use it:
//
//	old := bridge.Foreign(etcdmutex.New(etcd, "locks/"))
//	locks, err := fencelock.New(bridge.New(old, redislock.New(rdb, nil)), nil)
//
// Claims join the line of the Mutex, and are granted in its order. A grant has a fencing token only in a bridge.
package etcdmutex

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/once"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// Lock takes locks in one etcd. Its methods may be called from many goroutines at once. Try and Renew cost two
// requests, Release costs one.
type Lock struct {
	etcd   *clientv3.Client
	prefix string

	mu     sync.Mutex
	places map[[2]string]place // by key and ID
}

// place is a key in the line of a Mutex.
type place struct {
	name  string
	lease clientv3.LeaseID
	rev   int64 // at which the key was put; 0 if that is not known
}

// New returns a Lock on etcd, which stays the caller's. The lock of a key is that of
// concurrency.NewMutex(session, prefix + key).
func New(etcd *clientv3.Client, prefix string) *Lock {
	return &Lock{etcd: etcd, prefix: prefix, places: map[[2]string]place{}}
}

// Name returns "etcd concurrency.Mutex".
func (l *Lock) Name() string { return "etcd concurrency.Mutex" }

// Close does nothing. Locks that are held end with their leases.
func (l *Lock) Close() error { return nil }

// Try joins the line of the Mutex, and reports whether it is the first there.
func (l *Lock) Try(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	p, renewed, err := l.lease(ctx, key, id, ttl)
	if err != nil {
		return false, l.failed(ctx, "taking", key, err)
	}
	first, err := l.join(ctx, key, &p)
	if err == nil {
		l.keep(key, id, p)
		return first, nil
	}
	// A server that finds out that it has no space while it puts a key has put it.
	if errors.Is(err, rpctypes.ErrNoSpace) && l.revoke(ctx, p) == nil {
		err, renewed = driver.Refused(err), false
	}
	if err = l.failed(ctx, "taking", key, err); renewed {
		return false, driverutil.Unsettled(err)
	}
	if errors.Is(err, driver.ErrRefused) {
		l.drop(key, id) // a lease without a key ends by itself
	}
	return false, err
}

// lease returns the place of a claim, with its lease started again, or a new one. Release finds it from then on.
func (l *Lock) lease(ctx context.Context, key, id string, ttl time.Duration) (p place, renewed bool, err error) {
	if p, known := l.find(key, id); known {
		if alive, err := l.keepAlive(ctx, p); alive || err != nil {
			return p, true, err
		}
	}
	granted, err := once.Grant(clientv3.WithRequireLeader(ctx), l.etcd, int64((ttl+time.Second-1)/time.Second))
	if errors.Is(err, rpctypes.ErrNoSpace) {
		err = driver.Refused(err)
	}
	if err != nil {
		return place{}, false, err
	}
	p = place{name: fmt.Sprintf("%s%x", l.line(key), int64(granted)), lease: granted}
	l.keep(key, id, p)
	return p, false, nil
}

// join puts the key of p, unless an earlier request has, and reports whether it is the oldest in its line.
func (l *Lock) join(ctx context.Context, key string, p *place) (bool, error) {
	if p.rev > 0 {
		return l.first(ctx, key, p)
	}
	oldest := clientv3.OpGet(l.line(key), clientv3.WithFirstCreate()...)
	done, err := l.etcd.Txn(clientv3.WithRequireLeader(ctx)).
		If(clientv3.Compare(clientv3.CreateRevision(p.name), "=", 0)).
		Then(clientv3.OpPut(p.name, "", clientv3.WithLease(p.lease)), oldest).
		Else(clientv3.OpGet(p.name), oldest).
		Commit()
	if err != nil {
		return false, err
	}
	p.rev = done.Header.Revision
	if !done.Succeeded {
		p.rev = done.Responses[0].GetResponseRange().Kvs[0].CreateRevision
	}
	return p.isFirst(done.Responses[1].GetResponseRange().Kvs), nil
}

// first reports whether p is there and the oldest in its line.
func (l *Lock) first(ctx context.Context, key string, p *place) (bool, error) {
	found, err := l.etcd.Get(clientv3.WithRequireLeader(ctx), l.line(key), clientv3.WithFirstCreate()...)
	if err != nil {
		return false, err
	}
	return p.isFirst(found.Kvs), nil
}

func (p *place) isFirst(oldest []*mvccpb.KeyValue) bool {
	return len(oldest) > 0 && string(oldest[0].Key) == p.name && oldest[0].CreateRevision == p.rev
}

func (l *Lock) keepAlive(ctx context.Context, p place) (bool, error) {
	_, err := once.KeepAlive(clientv3.WithRequireLeader(ctx), l.etcd, p.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Renew starts the lease of a lock that id holds again.
func (l *Lock) Renew(ctx context.Context, key, id string, _ time.Duration) (bool, error) {
	p, known := l.find(key, id)
	if !known {
		return false, nil
	}
	alive, err := l.keepAlive(ctx, p)
	if !alive || err != nil {
		return false, l.failed(ctx, "renewing", key, err)
	}
	first, err := l.first(ctx, key, &p)
	return first, driverutil.Unsettled(l.failed(ctx, "renewing", key, err)) // the lease was renewed
}

// Release revokes the lease of id, whether it holds the lock or waits.
func (l *Lock) Release(ctx context.Context, key, id string) (bool, error) {
	p, known := l.find(key, id)
	if !known {
		return false, nil
	}
	err := l.revoke(ctx, p)
	gone := errors.Is(err, rpctypes.ErrLeaseNotFound)
	if err != nil && !gone {
		return false, l.failed(ctx, "releasing", key, err)
	}
	l.drop(key, id)
	return !gone, nil
}

func (l *Lock) revoke(ctx context.Context, p place) error {
	_, err := l.etcd.Revoke(clientv3.WithRequireLeader(ctx), p.lease)
	return err
}

// failed says what could not be done with which lock and what to do about it, as a refusal if the server refused.
func (l *Lock) failed(ctx context.Context, doing, key string, err error) error {
	if err == nil {
		return nil
	}
	told := reply.Explain(l.etcd, l.prefix, reply.Write, fmt.Sprintf("%s: %s %q", l.Name(), doing, key), err)
	if ended := driverutil.Ended(ctx); ended != nil && !errors.Is(told, driver.ErrRefused) {
		return fmt.Errorf("%s: %s %q: %w", l.Name(), doing, key, ended)
	}
	return told
}

// line is the prefix of the keys of a Mutex.
func (l *Lock) line(key string) string { return l.prefix + key + "/" }

func (l *Lock) keep(key, id string, p place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places[[2]string{key, id}] = p
}

func (l *Lock) find(key, id string) (place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.places[[2]string{key, id}]
	return p, ok
}

func (l *Lock) drop(key, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.places, [2]string{key, id})
}
