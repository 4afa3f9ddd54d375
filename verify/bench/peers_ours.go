package bench

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/storeurl"
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
		client, err := fencelock.New(b, &fencelock.Options{TTL: e.TTL, HandOff: handOff})
		if err != nil {
			return nil, errors.Join(err, done())
		}
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

// at is a backend on the store that a URL names.
func at(url func(Env) string) dialer {
	return func(e Env) (driver.Backend, func() error, error) {
		u, err := storeurl.Parse(url(e), storeurl.Source{Name: "the benchmark"})
		if err != nil {
			return nil, nil, err
		}
		store, err := u.Open(context.Background(), storeurl.Config{MaxConns: poolSize, Prepare: true})
		if err != nil {
			return nil, nil, err
		}
		return store.Backend, func() error { store.Close(); return nil }, nil
	}
}

func inMemory(Env) string   { return "memory:" }
func onSQLite(e Env) string { return "sqlite://" + filepath.Join(e.Dir, "locks.db") }
func onItsURL(e Env) string { return e.URL }

// onRedisServer uses go-redis with the settings that all other libraries on it have.
func onRedisServer(e Env) (driver.Backend, func() error, error) {
	rdb, done, err := dialGoRedis(e, false)
	if err != nil {
		return nil, nil, err
	}
	return redislock.New(rdb, nil), done, nil
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
