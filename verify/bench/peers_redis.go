package bench

import (
	"context"
	"errors"
	"math"
	"time"

	bsmredislock "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

var (
	compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	rawValue         = "0123456789abcdef0123456789abcdef" // a variable: random in real life, so it costs an allocation

	errTaken = errors.New("a key that nobody else wants was taken")
)

// goRedis is the client that each library on go-redis gets.
type goRedis struct {
	redis.UniversalClient
	close func() error
}

// dialGoRedis makes a client with the default settings. A pipelined one sends together what
// many goroutines send at a time.
func dialGoRedis(pipelined bool) func(Env) (goRedis, error) {
	return func(e Env) (goRedis, error) {
		rdb := redis.NewClient(&redis.Options{Addr: e.Addr})
		if !pipelined {
			return goRedis{rdb, rdb.Close}, nil
		}
		pipes, err := rdb.AutoPipeline()
		if err != nil {
			return goRedis{}, errors.Join(err, rdb.Close())
		}
		return goRedis{pipes, func() error { return errors.Join(pipes.Close(), rdb.Close()) }}, nil
	}
}

// openGoRedis opens the floor: SET NX PX, and compare and delete. It does not wait, renews
// nothing and has one value for all its locks: it is no lock that one should use.
func openGoRedis(pipelined bool) opener {
	return onClient(dialGoRedis(pipelined), func(e Env, rdb goRedis) library[struct{}] {
		compare := redis.NewScript(compareAndDelete)
		return library[struct{}]{
			lock: func(ctx context.Context, key string) (none struct{}, err error) {
				ok, err := rdb.SetNX(ctx, key, rawValue, e.TTL).Result()
				if err == nil && !ok {
					err = errTaken
				}
				return none, err
			},
			unlock: func(_ context.Context, key string, _ struct{}) error {
				return compare.Run(context.Background(), rdb, []string{key}, rawValue).Err()
			},
			close: rdb.close,
		}
	})
}

// openBaton opens the floor of a hand-over: a list with one element, which whoever comes first
// takes, and puts back. If its holder dies nobody gets it any more.
var openBaton = onClient(dialGoRedis(false), func(_ Env, rdb goRedis) library[struct{}] {
	return library[struct{}]{
		lock: func(ctx context.Context, key string) (none struct{}, err error) {
			if first, err := rdb.SetNX(ctx, key+"-made", rawValue, 0).Result(); first || err != nil {
				return none, err
			}
			return none, rdb.BLPop(ctx, time.Minute, key).Err()
		},
		unlock: func(_ context.Context, key string, _ struct{}) error {
			return rdb.LPush(context.Background(), key, rawValue).Err()
		},
		close: rdb.close,
	}
})

func dialRueidis(e Env) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{e.Addr}})
}

// openRueidis opens the floor through rueidis, which sends what many goroutines want over a
// few connections without waiting for the answers.
var openRueidis = onClient(dialRueidis, func(e Env, client rueidis.Client) library[struct{}] {
	compare := rueidis.NewLuaScript(compareAndDelete)
	return library[struct{}]{
		lock: func(ctx context.Context, key string) (none struct{}, err error) {
			set := client.B().Set().Key(key).Value(rawValue).Nx().PxMilliseconds(e.TTL.Milliseconds()).Build()
			err = client.Do(ctx, set).Error()
			if rueidis.IsRedisNil(err) {
				err = errTaken
			}
			return none, err
		},
		unlock: func(_ context.Context, key string, _ struct{}) error {
			return compare.Exec(context.Background(), client, []string{key}, []string{rawValue}).Error()
		},
		close: func() error { client.Close(); return nil },
	}
})

// openBsm opens github.com/bsm/redislock. It polls as often as it is told to, and gives up
// after one lease if ctx has no end: none of our cases lasts that long.
func openBsm(every time.Duration, pipelined bool) opener {
	return onClient(dialGoRedis(pipelined), func(e Env, rdb goRedis) library[*bsmredislock.Lock] {
		client := bsmredislock.New(rdb)
		var o *bsmredislock.Options
		if every > 0 {
			o = &bsmredislock.Options{RetryStrategy: bsmredislock.LinearBackoff(every)}
		}
		return library[*bsmredislock.Lock]{
			lock: func(ctx context.Context, key string) (*bsmredislock.Lock, error) {
				return client.Obtain(ctx, key, e.TTL, o)
			},
			unlock: func(_ context.Context, _ string, l *bsmredislock.Lock) error {
				return l.Release(context.Background())
			},
			extend: func(ctx context.Context, l *bsmredislock.Lock) error { return l.Refresh(ctx, e.TTL, nil) },
			ttl:    e.TTL,
			close:  rdb.close,
		}
	})
}

// openRedsync opens github.com/go-redsync/redsync with one server.
func openRedsync(every time.Duration, pipelined bool) opener {
	return onClient(dialGoRedis(pipelined), func(e Env, rdb goRedis) library[*redsync.Mutex] {
		return newRedsync(e, every, rdb.close, goredis.NewPool(rdb))
	})
}

// openRedsyncQuorum opens redsync with all nodes, as its README does.
var openRedsyncQuorum = onClient(dialNodes, func(e Env, nodes nodes) library[*redsync.Mutex] {
	var pools []redsyncredis.Pool
	for _, rdb := range nodes {
		pools = append(pools, goredis.NewPool(rdb))
	}
	return newRedsync(e, 0, nodes.close, pools...)
})

// newRedsync polls every 50 to 250 ms unless it is told otherwise. By default redsync gives
// up after 32 tries; here it never does.
func newRedsync(
	e Env, every time.Duration, done func() error, pools ...redsyncredis.Pool,
) library[*redsync.Mutex] {
	sync := redsync.New(pools...)
	o := []redsync.Option{redsync.WithExpiry(e.TTL), redsync.WithTries(math.MaxInt)}
	if every > 0 {
		o = append(o, redsync.WithRetryDelay(every))
	}
	held := func(ok bool, err error) error {
		if err == nil && !ok {
			err = errors.New("redsync does not hold the lock")
		}
		return err
	}
	return library[*redsync.Mutex]{
		lock: func(ctx context.Context, key string) (*redsync.Mutex, error) {
			m := sync.NewMutex(key, o...)
			return m, m.LockContext(ctx)
		},
		unlock: func(_ context.Context, _ string, m *redsync.Mutex) error {
			return held(m.UnlockContext(context.Background()))
		},
		extend: func(ctx context.Context, m *redsync.Mutex) error { return held(m.ExtendContext(ctx)) },
		ttl:    e.TTL,
		close:  done,
	}
}

// rueidisHeld is a lock of rueidislock: ctx ends when it is lost.
type rueidisHeld struct {
	ctx    context.Context
	unlock context.CancelFunc
}

// openRueidislock opens github.com/redis/rueidis/rueidislock with one key for each lock: more
// of them cost more, and make nothing safer on one server. noLoop is the setting that its
// README recommends; without it, it is nearly fair, and hands over much more often.
func openRueidislock(noLoop bool) opener {
	dial := func(e Env) (rueidislock.Locker, error) {
		return rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{e.Addr}},
			KeyMajority:    1,
			NoLoopTracking: noLoop,
			KeyValidity:    e.TTL,
			ExtendInterval: e.TTL / 3,
			// The default is 20 ms: on a busy machine a request for a free lock takes longer
			// now and then, is given up for the next key, of which there is none, and waits
			// forever.
			TryNextAfter: e.TTL,
		})
	}
	return onClient(dial, func(_ Env, locker rueidislock.Locker) library[rueidisHeld] {
		return library[rueidisHeld]{
			lock: func(ctx context.Context, key string) (h rueidisHeld, err error) {
				h.ctx, h.unlock, err = locker.WithContext(ctx, key)
				return h, err
			},
			unlock: func(_ context.Context, _ string, h rueidisHeld) error {
				defer h.unlock()
				return h.ctx.Err()
			},
			close: func() error { locker.Close(); return nil },
		}
	})
}

// nodes are the clients of a quorum, one for each server.
type nodes []*redis.Client

func dialNodes(e Env) (all nodes, err error) {
	for _, addr := range e.Nodes {
		all = append(all, redis.NewClient(&redis.Options{Addr: addr}))
	}
	return all, nil
}

func (all nodes) close() (err error) {
	for _, rdb := range all {
		err = errors.Join(err, rdb.Close())
	}
	return err
}

// openPings opens the floor of a quorum: all nodes are asked at once for nothing, and the
// answers of a majority are waited for, twice.
var openPings = onClient(dialNodes, func(_ Env, nodes nodes) library[struct{}] {
	ask := func(ctx context.Context) error {
		answers := make(chan error, len(nodes))
		for _, rdb := range nodes {
			go func() { answers <- rdb.Ping(ctx).Err() }()
		}
		for range len(nodes)/2 + 1 {
			if err := <-answers; err != nil {
				return err
			}
		}
		return nil
	}
	return library[struct{}]{
		lock:   func(ctx context.Context, _ string) (none struct{}, err error) { return none, ask(ctx) },
		unlock: func(context.Context, string, struct{}) error { return ask(context.Background()) },
		close:  nodes.close,
	}
})
