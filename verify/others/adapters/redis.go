package adapters

import (
	"context"
	"errors"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func dialRedis(addr string) (*redis.Client, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	return rdb, rdb.Ping(context.Background()).Err()
}

// openRedsync uses it as its README does, with its own number of tries.
func openRedsync(addr string, _ time.Duration, _ func(string)) (library, error) {
	rdb, err := dialRedis(addr)
	rs := redsync.New(goredis.NewPool(rdb))
	return lockFunc(func(ctx context.Context, key string, ttl time.Duration) (held, error) {
		m := rs.NewMutex(key, redsync.WithExpiry(ttl))
		err := m.LockContext(ctx)
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
			err = errRefused
		}
		return held{unlock: func() (bool, error) {
			ok, err := m.UnlockContext(context.Background())
			gone := err == nil || errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired)
			return !ok && gone, err
		}}, err
	}), err
}

// openBsm polls as the example of its documentation does: every 100 ms.
func openBsm(addr string, _ time.Duration, _ func(string)) (library, error) {
	rdb, err := dialRedis(addr)
	locker := bsm.New(rdb)
	return lockFunc(func(ctx context.Context, key string, ttl time.Duration) (held, error) {
		// Without an end of its own, a call waits for one lease.
		l, err := locker.Obtain(ctx, key, ttl, &bsm.Options{RetryStrategy: bsm.LinearBackoff(100 * time.Millisecond)})
		if errors.Is(err, bsm.ErrNotObtained) {
			err = errRefused
		}
		return held{unlock: func() (bool, error) {
			err := l.Release(context.Background())
			return errors.Is(err, bsm.ErrLockNotHeld), err
		}}, err
	}), err
}

// openRueidislock uses the setting of its README, with one key for one server. By default a
// request that takes longer than 20 ms is given up for another key, of which there is none. On
// a busy machine the caller then waits until somebody unlocks.
func openRueidislock(addr string, ttl time.Duration, _ func(string)) (library, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    ttl,
		TryNextAfter:   ttl,
	})
	return lockFunc(func(ctx context.Context, key string, _ time.Duration) (held, error) {
		inside, unlock, err := locker.WithContext(ctx, key)
		if err != nil {
			return held{}, err
		}
		return held{ended: inside.Done(), unlock: func() (bool, error) {
			lost := inside.Err() != nil
			unlock()
			return lost, nil
		}}, nil
	}), err
}
