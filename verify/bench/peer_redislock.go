package bench

import (
	"context"
	"time"

	"github.com/bsm/redislock"
)

// bsmLocks is github.com/bsm/redislock. It polls as often as it is told to, and
// gives up after one lease if ctx has no end: none of our cases lasts that long.
type bsmLocks struct {
	client *redislock.Client
	opts   *redislock.Options
	ttl    time.Duration
	close  func() error
}

func openRedislock(every time.Duration) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		rdb := dialGoRedis(e)
		l := &bsmLocks{client: redislock.New(rdb), ttl: e.TTL, close: rdb.Close}
		if every > 0 {
			l.opts = &redislock.Options{RetryStrategy: redislock.LinearBackoff(every)}
		}
		return l, nil
	}
}

// openRedislockPipelined opens it on go-redis' own pipelining.
func openRedislockPipelined(e Env) (Locker, error) {
	pipes, done, err := dialPipelined(e)
	if err != nil {
		return nil, err
	}
	return &bsmLocks{client: redislock.New(pipes), ttl: e.TTL, close: done}, nil
}

func (l *bsmLocks) Do(ctx context.Context, key string, inside func(int64)) error {
	lock, err := l.client.Obtain(ctx, key, l.ttl, l.opts)
	if err != nil {
		return err
	}
	inside(0)
	return lock.Release(context.Background())
}

func (l *bsmLocks) Hold(ctx context.Context, key string) (Held, error) {
	lock, err := l.client.Obtain(ctx, key, l.ttl, l.opts)
	if err != nil {
		return nil, err
	}
	return watch(l.ttl, lock.Release, func(ctx context.Context) error {
		return lock.Refresh(ctx, l.ttl, nil)
	}), nil
}

func (l *bsmLocks) Close() error { return l.close() }
