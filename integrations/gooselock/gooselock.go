// Package gooselock lets several programs start goose at once: one migrates, the others
// wait and find nothing left to do.
//
//	goose.NewProvider(goose.DialectPostgres, db, migrations,
//		goose.WithLocker(gooselock.New(client, "migrate/shop")))
//
// The lock is a lease in a table, or in any other store, and no session of the
// database: it holds through PgBouncer, and on databases that have no locks.
//
// goose keeps a connection of its pool while it waits for the lock. If the lock is in the
// same database, give its backend a *sql.DB of its own: a pool of one connection that
// both share would wait for itself.
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/fencelock/fencelock"
)

// Locker is a lock.Locker of goose. goose does not stop when its lock is lost: what it
// runs in one transaction is whole, and Unlock says that the lock was lost.
type Locker struct {
	client *fencelock.Client
	key    string
	opts   []fencelock.Option

	mu    sync.Mutex
	lease *fencelock.Lease
}

var _ lock.Locker = (*Locker)(nil)

// New returns a Locker on key. opts are given to Client.Lock.
func New(client *fencelock.Client, key string, opts ...fencelock.Option) *Locker {
	return &Locker{client: client, key: key, opts: opts}
}

// Lock waits for the lock until ctx ends.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	lease, err := l.client.Lock(ctx, l.key, l.opts...)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease = lease
	return nil
}

// errNotLocked says that Unlock was called without Lock.
var errNotLocked = errors.New("the migration lock is not held")

// Unlock releases the lock, also when ctx has ended.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	l.mu.Lock()
	lease := l.lease
	l.lease = nil
	l.mu.Unlock()
	if lease == nil {
		return errNotLocked
	}
	return lease.Release(ctx)
}
