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

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Lock takes locks in one etcd. Its methods may be called from many goroutines at once. Try costs two requests at
// first and two for each time that it waits, the others one or two.
type Lock struct {
	etcd   *clientv3.Client
	prefix string

	mu     sync.Mutex
	places map[[2]string]place // by key and ID
}

// place is a key in the line of a Mutex.
type place struct {
	name  string
	rev   int64
	lease clientv3.LeaseID
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
	p, known := l.find(key, id)
	if known {
		alive, err := l.keepAlive(ctx, p)
		if err != nil {
			return false, err
		}
		if known = alive; !alive {
			l.drop(key, id)
		}
	}
	if !known {
		var err error
		if p, err = l.join(ctx, key, ttl); err != nil {
			return false, err
		}
		l.mu.Lock()
		l.places[[2]string{key, id}] = p
		l.mu.Unlock()
	}
	return l.first(ctx, key, p)
}

// join puts a key with a lease of its own.
func (l *Lock) join(ctx context.Context, key string, ttl time.Duration) (place, error) {
	granted, err := l.etcd.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return place{}, err
	}
	p := place{name: fmt.Sprintf("%s%x", l.line(key), int64(granted.ID)), lease: granted.ID}
	put, err := l.etcd.Put(ctx, p.name, "", clientv3.WithLease(p.lease))
	if err != nil {
		return place{}, err // the lease ends by itself, and what it may have put with it
	}
	p.rev = put.Header.Revision
	return p, nil
}

// first reports whether p is there and the oldest in its line.
func (l *Lock) first(ctx context.Context, key string, p place) (bool, error) {
	found, err := l.etcd.Get(ctx, l.line(key), clientv3.WithFirstCreate()...)
	if err != nil {
		return false, err
	}
	return len(found.Kvs) > 0 && string(found.Kvs[0].Key) == p.name && found.Kvs[0].CreateRevision == p.rev, nil
}

func (l *Lock) keepAlive(ctx context.Context, p place) (bool, error) {
	_, err := l.etcd.KeepAliveOnce(ctx, p.lease)
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
	if alive, err := l.keepAlive(ctx, p); !alive || err != nil {
		return false, err
	}
	return l.first(ctx, key, p)
}

// Release revokes the lease of id, whether it holds the lock or waits.
func (l *Lock) Release(ctx context.Context, key, id string) (bool, error) {
	p, known := l.find(key, id)
	if !known {
		return false, nil
	}
	_, err := l.etcd.Revoke(ctx, p.lease)
	gone := errors.Is(err, rpctypes.ErrLeaseNotFound)
	if err != nil && !gone {
		return false, err
	}
	l.drop(key, id)
	return !gone, nil
}

// line is the prefix of the keys of a Mutex.
func (l *Lock) line(key string) string { return l.prefix + key + "/" }

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
