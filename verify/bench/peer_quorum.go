package bench

import (
	"context"
	"errors"
	"math"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
)

func dialNodes(e Env) (all []*redis.Client, end func() error) {
	for _, addr := range e.Nodes {
		all = append(all, redis.NewClient(&redis.Options{Addr: addr}))
	}
	return all, func() error {
		var errs []error
		for _, rdb := range all {
			errs = append(errs, rdb.Close())
		}
		return errors.Join(errs...)
	}
}

// initialiseQuorum says that the nodes are new, so that they need not sit out a lease.
func initialiseQuorum(ctx context.Context, e Env) error {
	b, end := newQuorum(e)
	return errors.Join(b.Initialise(ctx), b.Close(), end())
}

func newQuorum(e Env) (*quorumlock.Backend, func() error) {
	nodes, end := dialNodes(e)
	var members []driver.Backend
	for _, rdb := range nodes {
		members = append(members, redislock.New(rdb, &redislock.Options{Member: &driver.Membership{}}))
	}
	return quorumlock.New(members, nil), end
}

func openQuorum(e Env) (Locker, error) {
	b, end := newQuorum(e)
	return newFenceLocks(e, b, 0, end), nil
}

// pings is the floor: all nodes are asked at once for nothing, and the answers of a
// majority are waited for, twice.
type pings struct {
	nodes []*redis.Client
	end   func() error
}

func openPings(e Env) (Locker, error) {
	nodes, end := dialNodes(e)
	return &pings{nodes, end}, nil
}

func (l *pings) Do(ctx context.Context, _ string, inside func(int64)) error {
	if err := l.ask(ctx); err != nil {
		return err
	}
	inside(0)
	return l.ask(context.Background())
}

func (l *pings) ask(ctx context.Context) error {
	answers := make(chan error, len(l.nodes))
	for _, rdb := range l.nodes {
		go func() { answers <- rdb.Ping(ctx).Err() }()
	}
	for range len(l.nodes)/2 + 1 {
		if err := <-answers; err != nil {
			return err
		}
	}
	return nil
}

func (l *pings) Hold(context.Context, string) (Held, error) { return nil, errNever }
func (l *pings) Close() error                               { return l.end() }

// openRedsyncQuorum opens redsync with all nodes, as its README does.
func openRedsyncQuorum(e Env) (Locker, error) {
	nodes, end := dialNodes(e)
	var pools []redsyncredis.Pool
	for _, rdb := range nodes {
		pools = append(pools, goredis.NewPool(rdb))
	}
	return &redsyncQuorum{redsyncLocks{sync: redsync.New(pools...), ttl: e.TTL, opts: []redsync.Option{
		redsync.WithExpiry(e.TTL), redsync.WithTries(math.MaxInt),
	}}, end}, nil
}

type redsyncQuorum struct {
	redsyncLocks
	end func() error
}

func (l *redsyncQuorum) Close() error { return l.end() }
