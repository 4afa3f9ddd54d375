package bench

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/storeurl"
)

// store is a backend of ours, and what closes the clients below it.
type store struct {
	driver.Backend
	close func() error
}

// openOurs opens fencelock on a backend. handOff is Options.HandOff.
func openOurs(dial func(Env) (store, error), handOff int) opener {
	return func(e Env) (Locker, error) {
		s, err := dial(e)
		if err != nil {
			return nil, err
		}
		client, err := fencelock.New(s.Backend, &fencelock.Options{TTL: e.TTL, HandOff: handOff})
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		return &library[*fencelock.Lease]{
			lock: func(ctx context.Context, key string) (*fencelock.Lease, error) {
				return client.Lock(ctx, key)
			},
			unlock: func(ctx context.Context, _ string, l *fencelock.Lease) error { return l.Release(ctx) },
			token:  func(l *fencelock.Lease) int64 { return int64(l.Token()) },
			close:  func() error { return errors.Join(client.Close(), s.close()) },
		}, nil
	}
}

// at is a backend on the store that a URL names.
func at(url func(Env) string) func(Env) (store, error) {
	return func(e Env) (store, error) {
		u, err := storeurl.Parse(url(e), storeurl.Source{Name: "the benchmark"})
		if err != nil {
			return store{}, err
		}
		s, err := u.Open(context.Background(), storeurl.Config{MaxConns: poolSize, Prepare: true})
		if err != nil {
			return store{}, err
		}
		return store{s.Backend, func() error { s.Close(); return nil }}, nil
	}
}

func inMemory(Env) string   { return "memory:" }
func onSQLite(e Env) string { return "sqlite://" + filepath.Join(e.Dir, "locks.db") }
func onItsURL(e Env) string { return e.URL }

// onRedisServer uses go-redis with the settings that all other libraries on it have.
func onRedisServer(e Env) (store, error) {
	rdb, err := dialGoRedis(false)(e)
	return store{redislock.New(rdb.UniversalClient, nil), rdb.close}, err
}

func onQuorum(e Env) (store, error) {
	nodes, err := dialNodes(e)
	var members []driver.Backend
	for _, rdb := range nodes {
		members = append(members, redislock.New(rdb, &redislock.Options{Member: &ballot.Membership{}}))
	}
	return store{quorumlock.New(members, nil), nodes.close}, err
}

// initialiseQuorum says that the nodes are new, so that they need not sit out a lease.
func initialiseQuorum(ctx context.Context, e Env) error {
	s, err := onQuorum(e)
	return errors.Join(err, s.Backend.(*quorumlock.Backend).Initialise(ctx), s.Backend.Close(), s.close())
}
