package bench

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/verify/traffic"
	"github.com/fencelock/fencelock/zklock"
)

// A dialer returns a backend of ours, and closes what is below it.
type dialer func(Env) (b driver.Backend, done func() error, err error)

// openOurs opens fencelock on a backend. handOff is Options.HandOff.
func openOurs(dial dialer, handOff int) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		b, done, err := dial(e)
		if err != nil {
			return nil, err
		}
		client := fencelock.New(b, &fencelock.Options{TTL: e.TTL, HandOff: handOff})
		return &library[*fencelock.Lease]{
			lock: func(ctx context.Context, key string) (*fencelock.Lease, error) {
				return client.Lock(ctx, key)
			},
			unlock: func(ctx context.Context, _ string, l *fencelock.Lease) error { return l.Release(ctx) },
			token:  func(l *fencelock.Lease) int64 { return int64(l.Token()) },
			close:  func() error { return errors.Join(client.Close(), done()) },
		}, nil
	}
}

func nothing() error { return nil }

func inMemory(Env) (driver.Backend, func() error, error) { return memlock.New(), nothing, nil }

func onSQLite(e Env) (driver.Backend, func() error, error) {
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(filepath.Join(e.Dir, "locks.db")))
	if err != nil {
		return nil, nil, err
	}
	return sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true}), db.Close, nil
}

func onRedisServer(e Env) (driver.Backend, func() error, error) {
	rdb, done, err := dialGoRedis(e, false)
	if err != nil {
		return nil, nil, err
	}
	return redislock.New(rdb, nil), done, nil
}

func onEtcdServer(e Env) (driver.Backend, func() error, error) {
	etcd, err := dialEtcd(e)
	if err != nil {
		return nil, nil, err
	}
	return etcdlock.New(etcd, nil), etcd.Close, nil
}

func onZooKeeperServer(e Env) (driver.Backend, func() error, error) {
	return zklock.New([]string{e.Store}, nil), nothing, nil
}

func onPostgresServer(e Env) (driver.Backend, func() error, error) {
	db, err := dialSQL("pgx", e)
	if err != nil {
		return nil, nil, err
	}
	config, err := pgx.ParseConfig(e.Store)
	if err != nil {
		return nil, nil, err
	}
	o := &sqllock.Options{CreateTables: true, Listen: traffic.Listen(config)}
	return sqllock.New(db, sqllock.Postgres, o), db.Close, nil
}

func onMariaDBServer(e Env) (driver.Backend, func() error, error) {
	db, err := dialSQL("mysql", e)
	if err != nil {
		return nil, nil, err
	}
	return sqllock.New(db, sqllock.MySQL, &sqllock.Options{CreateTables: true}), db.Close, nil
}

func onQuorum(e Env) (driver.Backend, func() error, error) {
	b, done := newQuorum(e)
	return b, done, nil
}

func newQuorum(e Env) (*quorumlock.Backend, func() error) {
	nodes, done := dialNodes(e)
	var members []driver.Backend
	for _, rdb := range nodes {
		members = append(members, redislock.New(rdb, &redislock.Options{Member: &driver.Membership{}}))
	}
	return quorumlock.New(members, nil), done
}

// initialiseQuorum says that the nodes are new, so that they need not sit out a lease.
func initialiseQuorum(ctx context.Context, e Env) error {
	b, done := newQuorum(e)
	return errors.Join(b.Initialise(ctx), b.Close(), done())
}
