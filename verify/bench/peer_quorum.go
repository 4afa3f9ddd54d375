package bench

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"

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

// quorumLimit is the limit of a lock on a majority that has a lease and a token: the bare
// scripts are sent to all nodes at once, and a majority is waited for, twice. A node is told
// to let go when it has answered that it granted, also when nobody waits for it any more,
// and it is not asked again before that is done: a key that one goroutine alone wants is
// never found taken. A node grants in the history alone in which it became one.
type quorumLimit struct {
	nodes []*bareScripts
	turns []sync.Mutex // of the nodes
	end   func() error
}

var bareVote = bareScript("vote")

// bareMember is the key in which a node remembers when it became one.
const bareMember = "fencelock:@bare"

func openQuorumLimit(e Env) (Locker, error) {
	nodes, end := dialNodes(e)
	l := &quorumLimit{turns: make([]sync.Mutex, len(nodes)), end: end}
	for _, rdb := range nodes {
		l.nodes = append(l.nodes, newBareScripts(e, rdb, rdb.Close))
		_, history, _ := strings.Cut(rdb.Info(context.Background(), "replication").Val(), "master_replid:")
		history, _, ok := strings.Cut(history, "\r")
		if err := rdb.Set(context.Background(), bareMember, "master_replid:"+history, 0).Err(); err != nil || !ok {
			return nil, errors.Join(err, errors.New("a node does not become a member"), end())
		}
	}
	return l, nil
}

func (l *quorumLimit) Do(ctx context.Context, key string, inside func(int64)) error {
	keys := bareKeys(key)
	ballot := append(bareKeys(key), bareMember)
	granted, left, leave := make(chan error, len(l.nodes)), make(chan error, len(l.nodes)), make(chan struct{})
	for i, n := range l.nodes {
		go func() {
			l.turns[i].Lock()
			defer l.turns[i].Unlock()
			_, err := bareToken(bareVote.Run(ctx, n.cmds, ballot, n.enter...))
			granted <- err
			<-leave
			if err == nil {
				err = bareLeave.Run(context.Background(), n.cmds, keys, n.leave...).Err()
			}
			left <- err
		}()
	}
	err := l.majority(granted)
	if err == nil {
		inside(0)
	}
	close(leave)
	return errors.Join(err, l.majority(left))
}

// majority waits until most nodes have done it, or cannot any more.
func (l *quorumLimit) majority(answers <-chan error) error {
	done, failed := 0, 0
	for {
		if err := <-answers; err == nil {
			done++
		} else if failed++; failed > len(l.nodes)/2 {
			return err
		}
		if done > len(l.nodes)/2 {
			return nil
		}
	}
}

func (l *quorumLimit) Hold(context.Context, string) (Held, error) { return nil, errNever }
func (l *quorumLimit) Close() error                               { return l.end() }
