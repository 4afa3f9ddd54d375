package bench

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncLocks is github.com/go-redsync/redsync with one server. It polls every 50
// to 250 ms unless it is told otherwise. By default it gives up after 32 tries;
// here it never does.
type redsyncLocks struct {
	sync  *redsync.Redsync
	opts  []redsync.Option
	ttl   time.Duration
	close func() error
}

func openRedsync(every time.Duration) func(Env) (Locker, error) {
	return func(e Env) (Locker, error) {
		rdb := dialGoRedis(e)
		l := newRedsync(e, rdb, rdb.Close)
		if every > 0 {
			l.opts = append(l.opts, redsync.WithRetryDelay(every))
		}
		return l, nil
	}
}

// openRedsyncPipelined opens it on go-redis' own pipelining.
func openRedsyncPipelined(e Env) (Locker, error) {
	pipes, done, err := dialPipelined(e)
	if err != nil {
		return nil, err
	}
	return newRedsync(e, pipes, done), nil
}

func newRedsync(e Env, client redis.UniversalClient, done func() error) *redsyncLocks {
	return &redsyncLocks{redsync.New(goredis.NewPool(client)),
		[]redsync.Option{redsync.WithExpiry(e.TTL), redsync.WithTries(math.MaxInt)}, e.TTL, done}
}

func (l *redsyncLocks) Do(ctx context.Context, key string, inside func(int64)) error {
	m := l.sync.NewMutex(key, l.opts...)
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	inside(0)
	_, err := m.UnlockContext(context.Background())
	return err
}

func (l *redsyncLocks) Hold(ctx context.Context, key string) (Held, error) {
	m := l.sync.NewMutex(key, l.opts...)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	sure := func(act func(context.Context) (bool, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			if ok, err := act(ctx); err != nil || !ok {
				return errors.Join(errors.New("the lock was lost"), err)
			}
			return nil
		}
	}
	return watch(l.ttl, sure(m.UnlockContext), sure(m.ExtendContext)), nil
}

func (l *redsyncLocks) Close() error { return l.close() }
