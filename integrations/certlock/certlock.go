// Package certlock has the lock methods that a certmagic.Storage needs, so that the
// storage of certificates may be kept anywhere and its locks where fencelock keeps them:
//
//	type storage struct {
//		*certmagic.FileStorage // or any other
//		*certlock.Locker
//	}
//
// (Lock and Unlock of both are ambiguous then: choose with methods of your own.) It does
// not import certmagic.
package certlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
)

// Locker implements the interfaces Locker, TryLocker and LockLeaseRenewer of certmagic.
type Locker struct {
	client *fencelock.Client
	opts   []fencelock.Option

	mu   sync.Mutex
	held map[string][]*fencelock.Lease // the oldest first
}

// New returns a Locker. opts are given to each call of Client.Lock and TryLock.
func New(client *fencelock.Client, opts ...fencelock.Option) *Locker {
	return &Locker{client: client, opts: opts, held: map[string][]*fencelock.Lease{}}
}

// Lock waits for the lock of name until ctx ends. The lock stays held and renewed until
// Unlock, whatever becomes of ctx.
func (l *Locker) Lock(ctx context.Context, name string) error {
	lease, err := l.client.Lock(ctx, name, l.opts...)
	if err != nil {
		return err
	}
	l.keep(name, lease)
	return nil
}

// TryLock takes the lock of name if that is possible now.
func (l *Locker) TryLock(ctx context.Context, name string) (bool, error) {
	lease, err := l.client.TryLock(ctx, name, l.opts...)
	if errors.Is(err, fencelock.ErrNotAcquired) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.keep(name, lease)
	return true, nil
}

func (l *Locker) keep(name string, lease *fencelock.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[name] = append(l.held[name], lease)
}

// Unlock releases the lock of name. An error that matches fencelock.ErrLost says that it
// had been lost.
//
// A name does not identify the caller. If a lock was lost and taken again through this
// Locker, the first Unlock counts for the caller that lost it, so that no lock is
// released early.
func (l *Locker) Unlock(ctx context.Context, name string) error {
	l.mu.Lock()
	leases := l.held[name]
	if len(leases) > 1 {
		l.held[name] = leases[1:]
	} else {
		delete(l.held, name)
	}
	l.mu.Unlock()
	if len(leases) == 0 {
		return fmt.Errorf("%q is not locked here", name)
	}
	return leases[0].Release(ctx)
}

// RenewLockLease returns an error if the lock is not held. The lease is renewed in the
// background anyway.
func (l *Locker) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	l.mu.Lock()
	leases := l.held[name]
	l.mu.Unlock()
	if len(leases) == 0 {
		return fmt.Errorf("%q is not locked here", name)
	}
	return leases[len(leases)-1].Err()
}
