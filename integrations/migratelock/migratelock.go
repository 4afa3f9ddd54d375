// Package migratelock gives any driver of golang-migrate a lock that is a lease, instead
// of a session lock or none.
//
//	driver, err := postgres.WithInstance(db, &postgres.Config{})
//	m, err := migrate.NewWithDatabaseInstance("file://migrations", "shop",
//		migratelock.Wrap(driver, client, "migrate/shop"))
//
// The PostgreSQL drivers of golang-migrate take their own session lock once when they are
// opened, to make their table, before they can be wrapped. Open them past a pooler in
// transaction mode, where such a lock may be left behind and stop all others.
//
// A pod that is killed in the middle of a statement leaves that statement running in PostgreSQL
// and MariaDB, and the next pod may run the migration again next to it. Give the database of the
// migrations an application_name of its own (PostgreSQL), or a user of its own (MariaDB, MySQL), and
// end what is left of the earlier pod:
//
//	d := migratelock.Wrap(driver, client, "migrate/shop")
//	d.Begin = migratelock.EndSessions(db, "migrate/shop")
//
// A client_connection_check_interval in the DSN (PostgreSQL 14 and later) ends such a statement
// without the next pod.
package migratelock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/dbsession"
)

// Driver is a database.Driver whose Lock and Unlock are a lease of fencelock's. The rest
// is that of the driver within, whose own lock is not used.
type Driver struct {
	database.Driver
	client *fencelock.Client
	key    string
	opts   []fencelock.Option

	// Begin is called with the lock held, before migrate reads the version. If it returns an
	// error, the lock is released and nothing is migrated. Nil: nothing is called.
	Begin func(ctx context.Context) error

	open    context.Context // until Close
	close   context.CancelFunc
	running sync.RWMutex // read-locked while a migration or a version is written

	mu    sync.Mutex
	lease *fencelock.Lease
}

var _ database.Driver = (*Driver)(nil)

// wait is how long Lock waits, unless opts say otherwise. migrate itself gives up after
// 15 seconds unless Migrate.LockTimeout says otherwise, and then forgets a lock that it
// gets later, so this is a little less.
const wait = 14 * time.Second

// Wrap puts the lock of key around d. opts are given to Client.Lock, after
// Wait(14*time.Second).
func Wrap(d database.Driver, client *fencelock.Client, key string, opts ...fencelock.Option) *Driver {
	open, end := context.WithCancel(context.Background())
	return &Driver{Driver: d, client: client, key: key, open: open, close: end,
		opts: append([]fencelock.Option{fencelock.Wait(wait)}, opts...)}
}

// EndSessions returns a Begin that ends what an earlier pod has left, and returns when none is left.
// On PostgreSQL that is every session of the database of db that has name as its application_name and
// runs a statement or is in a transaction. On MariaDB and MySQL it is every session of the user name
// that runs a statement. The migrations, and nothing else, must have that name.
func EndSessions(db *sql.DB, name string) func(context.Context) error {
	return func(ctx context.Context) error { return dbsession.End(ctx, db, name) }
}

// Lock waits for the lock. If another client holds it for too long, the error matches
// database.ErrLocked. Close ends the waiting.
func (d *Driver) Lock() error {
	lease, err := d.client.Lock(d.open, d.key, d.opts...)
	if errors.Is(err, fencelock.ErrNotAcquired) {
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	}
	if err != nil {
		return err
	}
	if d.Begin != nil {
		if err := d.Begin(lease.Context()); err != nil {
			return errors.Join(err, lease.Release(context.Background()))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.open.Err(); err != nil { // migrate had given up, and nobody would release it
		return errors.Join(err, lease.Release(context.Background()))
	}
	d.lease = lease
	return nil
}

// Unlock releases the lock. An error that matches fencelock.ErrLost means that another
// process may have migrated meanwhile.
func (d *Driver) Unlock() error {
	d.mu.Lock()
	lease := d.lease
	d.lease = nil
	d.mu.Unlock()
	if lease == nil {
		return database.ErrNotLocked
	}
	return lease.Release(context.Background())
}

// held reports why the lock is not held any more, or nil.
func (d *Driver) held() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.open.Err(); err != nil {
		return err
	}
	if d.lease == nil {
		return nil // Run without Lock is between migrate and its caller
	}
	return d.lease.Err()
}

// Run applies a migration, unless the lock has been lost.
func (d *Driver) Run(migration io.Reader) error {
	d.running.RLock()
	defer d.running.RUnlock()
	if err := d.held(); err != nil {
		return err
	}
	return d.Driver.Run(migration)
}

// SetVersion notes the version, unless the lock has been lost.
func (d *Driver) SetVersion(version int, dirty bool) error {
	d.running.RLock()
	defer d.running.RUnlock()
	if err := d.held(); err != nil {
		return err
	}
	return d.Driver.SetVersion(version, dirty)
}

// Close closes the driver within, and then releases the lock if it is still held. A migration
// that runs meanwhile keeps the lock until its end, and Close waits for that.
func (d *Driver) Close() error {
	d.close()
	err := d.Driver.Close()
	d.running.Lock()
	defer d.running.Unlock()
	if released := d.Unlock(); !errors.Is(released, database.ErrNotLocked) {
		err = errors.Join(err, released)
	}
	return err
}
