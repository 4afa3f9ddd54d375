// Package locker makes a lock of fencelock a sync.Locker, for code that takes one.
//
// sync.Locker knows no errors, no contexts and no loss. What that means here is in
// the comments of [Locker]; where you can, use the Client itself.
package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock"
)

// Locker is a sync.Locker over machines: one holder among all programs that use the
// same store and key. New makes one. It may be used by many goroutines, and
// like a sync.Mutex it may be unlocked by another goroutine than the one that locked
// it, and it is not re-entrant.
//
// Its limits:
//
//   - Lock waits for as long as it takes, also while the store is down, and cannot be
//     stopped but by closing the Client.
//   - The lock may be lost while it is held: the lease ends if it cannot be renewed.
//     The holder must ask. Look at Err before each important step, work under the
//     Context of Lease, and guard every write with its Token (see package fence).
//   - A sync.Cond on a Locker wakes goroutines of this process only.
type Locker struct {
	client *fencelock.Client
	key    string
	opts   []fencelock.Option
	turn   chan struct{} // taken from Lock to Unlock: a holder that lost the lock must not unlock the next one's
	lease  atomic.Pointer[fencelock.Lease]
}

var _ sync.Locker = (*Locker)(nil)

// New returns a Locker for key. It asks the store nothing yet. opts are those of
// [fencelock.Client.Lock]; Wait is none of them.
func New(client *fencelock.Client, key string, opts ...fencelock.Option) *Locker {
	return &Locker{client: client, key: key, opts: opts, turn: make(chan struct{}, 1)}
}

// Lock waits until it holds the lock. It costs one round trip if the key is free. It
// panics where waiting is useless: if the Client is closed, if the key or an option
// is invalid, and if the key is in use as a semaphore.
func (l *Locker) Lock() {
	l.turn <- struct{}{} // not a sync.Mutex: virtual time does not go on while one is waited for
	lease, err := l.client.Lock(context.Background(), l.key, l.opts...)
	if err != nil {
		<-l.turn
		panic(fmt.Errorf("locker: %w", err))
	}
	l.lease.Store(lease)
}

// Unlock gives the lock back. It costs one round trip, and waits for the store for
// two seconds at most; then it goes on in the background. It does not report a loss:
// ask Err before. It panics if the Locker is not locked.
func (l *Locker) Unlock() {
	lease := l.lease.Swap(nil)
	if lease == nil {
		panic(errors.New("locker: unlock of a Locker that is not locked"))
	}
	defer func() { <-l.turn }()
	_ = lease.Release(context.Background())
}

// Lease returns the lease between Lock and Unlock, for its Context, Token and Err,
// and nil otherwise.
func (l *Locker) Lease() *fencelock.Lease { return l.lease.Load() }

// Err says whether the lock is held: nil between Lock and Unlock unless it was lost,
// else why not. It looks at the clock, and costs no round trip.
func (l *Locker) Err() error {
	if lease := l.Lease(); lease != nil {
		return lease.Err()
	}
	return errNotLocked
}

var errNotLocked = errors.New("locker: it is not locked")
