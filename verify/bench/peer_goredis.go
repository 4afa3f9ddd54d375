package bench

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// goRedis is the floor: SET NX PX, and compare and delete, through go-redis with
// its default settings. It does not wait, renews nothing and has one value for
// all its locks: it is no lock that one should use.
type goRedis struct {
	cmds  redis.Cmdable
	ttl   time.Duration
	close func() error
}

var (
	compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	compareGoRedis   = redis.NewScript(compareAndDelete)
	rawValue         = "0123456789abcdef0123456789abcdef"

	errTaken = errors.New("a key that nobody else wants was taken")
	errNever = errors.New("the floor holds nothing")
)

func openGoRedis(e Env) (Locker, error) {
	rdb := dialGoRedis(e)
	return &goRedis{cmds: rdb, ttl: e.TTL, close: rdb.Close}, nil
}

// openGoRedisPipelined opens the same on go-redis' own pipelining of what many
// goroutines send at a time.
func openGoRedisPipelined(e Env) (Locker, error) {
	pipes, done, err := dialPipelined(e)
	if err != nil {
		return nil, err
	}
	return &goRedis{cmds: pipes, ttl: e.TTL, close: done}, nil
}

// dialGoRedis returns the client that each library on go-redis gets: one of its
// own, with the default settings.
func dialGoRedis(e Env) *redis.Client { return redis.NewClient(&redis.Options{Addr: e.Store}) }

// dialPipelined returns one that sends together what many goroutines send at a time.
func dialPipelined(e Env) (*redis.AutoPipeliner, func() error, error) {
	rdb := dialGoRedis(e)
	pipes, err := rdb.AutoPipeline()
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return pipes, func() error { return errors.Join(pipes.Close(), rdb.Close()) }, nil
}

func (l *goRedis) Do(ctx context.Context, key string, inside func(int64)) error {
	ok, err := l.cmds.SetNX(ctx, key, rawValue, l.ttl).Result()
	if err != nil {
		return err
	}
	if !ok {
		return errTaken
	}
	inside(0)
	return compareGoRedis.Run(context.Background(), l.cmds, []string{key}, rawValue).Err()
}

func (l *goRedis) Hold(context.Context, string) (Held, error) { return nil, errNever }
func (l *goRedis) Close() error                               { return l.close() }
