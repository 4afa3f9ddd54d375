package traffic

import (
	"context"
	"errors"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Locks of others, used as their READMEs show: lock, work, unlock. Both are leases on one
// Redis without a fencing token and without a signal to a holder whose lease has ended,
// and their documentation says so. A holder believes in its lock until it gives it back.

// ghost is what a caller may leave behind that gave up while its request was on its way: a
// lock that nobody holds, for a lease; and somebody may do so again.
const ghost = 2 * time.Second

// pollEvery is how often they ask for a lock that is taken.
const pollEvery = 20 * time.Millisecond

func redsyncService() Service {
	return Service{
		Traits: Traits{Name: "redsync", Lag: ghost, MinTTL: 100 * time.Millisecond},
		Open: func(ctx context.Context, raw string, ttl time.Duration) (Locks, error) {
			u, err := ParseURL(raw)
			if err != nil {
				return nil, err
			}
			rdb, err := OpenRedis(ctx, u)
			if err != nil {
				return nil, err
			}
			return &redsyncLocks{rdb, redsync.New(goredis.NewPool(rdb)), ttl}, nil
		},
	}
}

type redsyncLocks struct {
	rdb  redis.UniversalClient
	sync *redsync.Redsync
	ttl  time.Duration
}

func (l *redsyncLocks) Close() error { return l.rdb.Close() }

func (l *redsyncLocks) Take(ctx context.Context, w Want) (Lease, Outcome, error) {
	tries := 1
	if !w.Try {
		tries = 1 << 30
	}
	if w.Wait > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, w.Wait)
		defer cancel()
	}
	m := l.sync.NewMutex(w.Key, redsync.WithExpiry(l.ttl), redsync.WithTries(tries), redsync.WithRetryDelay(pollEvery))
	err := m.LockContext(ctx)
	var taken *redsync.ErrTaken
	switch {
	case err == nil:
		return &plainLease{ctx: context.Background(), release: func(ctx context.Context) (bool, error) {
			ok, err := m.UnlockContext(ctx)
			return !ok && (err == nil || errors.Is(err, redsync.ErrLockAlreadyExpired)), err
		}}, Got, nil
	case ctx.Err() == nil && (errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)) && w.Try:
		return nil, NotNow, err
	}
	return nil, Unknown, err
}

func redislockService() Service {
	return Service{
		Traits: Traits{Name: "bsm/redislock", Lag: ghost, MinTTL: 100 * time.Millisecond},
		Open: func(ctx context.Context, raw string, ttl time.Duration) (Locks, error) {
			u, err := ParseURL(raw)
			if err != nil {
				return nil, err
			}
			rdb, err := OpenRedis(ctx, u)
			if err != nil {
				return nil, err
			}
			return &bsmLocks{rdb, bsm.New(rdb), ttl}, nil
		},
	}
}

type bsmLocks struct {
	rdb    redis.UniversalClient
	client *bsm.Client
	ttl    time.Duration
}

func (l *bsmLocks) Close() error { return l.rdb.Close() }

func (l *bsmLocks) Take(ctx context.Context, w Want) (Lease, Outcome, error) {
	var o *bsm.Options
	if !w.Try {
		o = &bsm.Options{RetryStrategy: bsm.LinearBackoff(pollEvery)}
	}
	if w.Wait > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, w.Wait)
		defer cancel()
	}
	lock, err := l.client.Obtain(ctx, w.Key, l.ttl, o)
	switch {
	case err == nil:
		return &plainLease{ctx: context.Background(), release: func(ctx context.Context) (bool, error) {
			err := lock.Release(ctx)
			return errors.Is(err, bsm.ErrLockNotHeld), err
		}}, Got, nil
	case errors.Is(err, bsm.ErrNotObtained) && w.Try:
		return nil, NotNow, err
	}
	return nil, Unknown, err
}

// plainLease is a lease that tells nothing.
type plainLease struct {
	ctx     context.Context
	token   int64
	release func(context.Context) (lost bool, err error)
}

func (l *plainLease) Token() int64             { return l.token }
func (l *plainLease) Context() context.Context { return l.ctx }
func (l *plainLease) Err() error               { return nil }
func (l *plainLease) Deadline() time.Time      { return time.Time{} }
func (l *plainLease) Release(ctx context.Context) (bool, error) {
	return l.release(context.WithoutCancel(ctx))
}

// PlainLease is a lease of a library that tells a holder nothing: it believes in the lock
// until it gives it back.
func PlainLease(token int64, release func(context.Context) (lost bool, err error)) Lease {
	return &plainLease{ctx: context.Background(), token: token, release: release}
}
