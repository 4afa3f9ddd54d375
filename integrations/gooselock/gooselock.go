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
//
// A pod that is killed in a migration without a transaction (-- +goose NO TRANSACTION) leaves
// its statement running in PostgreSQL and MariaDB, and the next pod runs the migration again
// next to it. Give the pool of the migrations an application_name of its own (PostgreSQL), or a user of
// its own (MariaDB, MySQL), and end what is left of the earlier pod:
//
//	locker := gooselock.New(client, "migrate/shop")
//	locker.Begin = gooselock.EndSessions("migrate/shop")
//
// A client_connection_check_interval in the DSN (PostgreSQL 14 and later) ends such a statement
// without the next pod.
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/dbsession"
)

// Locker is a lock.Locker of goose. goose does not stop when its lock is lost: a
// migration that is one transaction is complete, and Unlock returns an error that the
// lock was lost.
type Locker struct {
	client *fencelock.Client
	key    string
	opts   []fencelock.Option

	// Begin is called with the lock held, before goose reads which migrations are done. If it
	// returns an error, the lock is released and nothing is migrated. Nil: nothing is called.
	Begin func(ctx context.Context, db *sql.DB) error

	mu    sync.Mutex
	lease *fencelock.Lease
}

var _ lock.Locker = (*Locker)(nil)

// New returns a Locker on key. opts are given to Client.Lock.
func New(client *fencelock.Client, key string, opts ...fencelock.Option) *Locker {
	return &Locker{client: client, key: key, opts: opts}
}

// EndSessions returns a Begin that ends what an earlier pod has left, and returns when none is left.
// On PostgreSQL that is every session of the database that has name as its application_name and runs
// a statement or is in a transaction. On MariaDB and MySQL it is every session of the user name that
// runs a statement. The pool of the migrations, and no other, must have that name.
func EndSessions(name string) func(context.Context, *sql.DB) error {
	return func(ctx context.Context, db *sql.DB) error { return dbsession.End(ctx, db, name) }
}

// Lock waits for the lock until ctx ends.
func (l *Locker) Lock(ctx context.Context, db *sql.DB) error {
	lease, err := l.client.Lock(ctx, l.key, l.opts...)
	if err != nil {
		return err
	}
	if l.Begin != nil {
		if err := l.Begin(lease.Context(), db); err != nil {
			return errors.Join(err, lease.Release(ctx))
		}
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
