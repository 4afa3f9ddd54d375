package bench

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/sqllock"
)

// fenceLocks is fencelock on one of its backends.
type fenceLocks struct {
	client *fencelock.Client
	close  func() error // what the backend was made from
}

// openFencelock opens fencelock on Redis. handOff is Options.HandOff.
func openFencelock(handOff int) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		rdb := dialGoRedis(e)
		return newFenceLocks(e, redislock.New(rdb, nil), handOff, rdb.Close), nil
	}
}

func openMemory(e Env) (Locker, error) {
	return newFenceLocks(e, memlock.New(), 0, func() error { return nil }), nil
}

func openSQLite(e Env) (Locker, error) {
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(filepath.Join(e.Dir, "locks.db")))
	if err != nil {
		return nil, err
	}
	b := sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true})
	return newFenceLocks(e, b, 0, db.Close), nil
}

func newFenceLocks(e Env, b driver.Backend, handOff int, done func() error) *fenceLocks {
	client := fencelock.New(b, &fencelock.Options{TTL: e.TTL, HandOff: handOff})
	return &fenceLocks{client, done}
}

func (l *fenceLocks) Do(ctx context.Context, key string, inside func(int64)) error {
	lease, err := l.client.Lock(ctx, key)
	if err != nil {
		return err
	}
	inside(int64(lease.Token()))
	return lease.Release(ctx)
}

func (l *fenceLocks) Hold(ctx context.Context, key string) (Held, error) {
	lease, err := l.client.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (l *fenceLocks) Close() error { return errors.Join(l.client.Close(), l.close()) }
