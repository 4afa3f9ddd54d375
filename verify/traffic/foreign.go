package traffic

import (
	"context"
	"errors"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/driver/ballot"
)

// ghost is what a caller may leave behind that gave up while its request was on its way: a
// lock that nobody holds, for a lease; and somebody may do so again.
const ghost = 2 * time.Second

// pollEvery is how often the libraries of others ask for a lock that is taken.
const pollEvery = 20 * time.Millisecond

// foreign is a lock of another library, used as its README shows: lock, work, unlock. It is a
// lease on one Redis without a fencing token, and a holder is not told when it ends.
type foreign struct {
	rdb  redis.UniversalClient
	take obtain
}

// obtain takes a lock. refused says that somebody else has it.
type obtain func(ctx context.Context, key string, try bool) (unlock plainLease, refused bool, err error)

// foreignService makes a Service of a library.
func foreignService(name string, library func(rdb redis.UniversalClient, ttl time.Duration) obtain) Service {
	return Service{
		Traits: Traits{Name: name, Ways: []string{"mutex", "set"}, Lag: ghost, MinTTL: 100 * time.Millisecond},
		Open: func(ctx context.Context, raw, via string, ttl time.Duration) (Locks, error) {
			u, err := ParseURL(raw)
			if err != nil {
				return nil, err
			}
			rdb, err := u.Redis(ctx, config(via, ttl, ballot.Membership{}))
			if err != nil {
				return nil, err
			}
			return foreign{rdb, library(rdb, ttl)}, nil
		},
	}
}

func (l foreign) Close() error { return l.rdb.Close() }

func (l foreign) Take(ctx context.Context, w Want) (Lease, Outcome, error) {
	if w.Wait > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, w.Wait)
		defer cancel()
	}
	unlock, refused, err := l.take(ctx, w.Key, w.Try)
	switch {
	case err == nil:
		return unlock, Got, nil
	case refused && w.Try && ctx.Err() == nil:
		return nil, NotNow, err
	}
	return nil, Unknown, err
}

func redsyncLibrary(rdb redis.UniversalClient, ttl time.Duration) obtain {
	library := redsync.New(goredis.NewPool(rdb))
	return func(ctx context.Context, key string, try bool) (plainLease, bool, error) {
		tries := 1
		if !try {
			tries = 1 << 30
		}
		m := library.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(tries), redsync.WithRetryDelay(pollEvery))
		err := m.LockContext(ctx)
		unlock := func(ctx context.Context) (bool, error) {
			ok, err := m.UnlockContext(ctx)
			return !ok && (err == nil || errors.Is(err, redsync.ErrLockAlreadyExpired)), err
		}
		var taken *redsync.ErrTaken
		return unlock, errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed), err
	}
}

func bsmLibrary(rdb redis.UniversalClient, ttl time.Duration) obtain {
	library := bsm.New(rdb)
	return func(ctx context.Context, key string, try bool) (plainLease, bool, error) {
		var o *bsm.Options
		if !try {
			o = &bsm.Options{RetryStrategy: bsm.LinearBackoff(pollEvery)}
		}
		lock, err := library.Obtain(ctx, key, ttl, o)
		unlock := func(ctx context.Context) (bool, error) {
			err := lock.Release(ctx)
			return errors.Is(err, bsm.ErrLockNotHeld), err
		}
		return unlock, errors.Is(err, bsm.ErrNotObtained), err
	}
}

// plainLease is a lease that tells nothing: what gives it back.
type plainLease func(context.Context) (lost bool, err error)

func (plainLease) Token() int64                                { return 0 }
func (plainLease) Context() context.Context                    { return context.Background() }
func (plainLease) Err() error                                  { return nil }
func (plainLease) Deadline() time.Time                         { return time.Time{} }
func (l plainLease) Release(ctx context.Context) (bool, error) { return l(context.WithoutCancel(ctx)) }
