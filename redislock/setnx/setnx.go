// Package setnx takes locks that other libraries keep in one Redis key with SET NX PX and a random
// value: redsync on one server, bsm/redislock, redis-py's Lock, and the many programs that follow
// the documentation of Redis. With bridge.Foreign it lets fencelock exclude programs that still
// use such a library:
//
//	old := bridge.Foreign(setnx.New(rdb, ""))
//	locks, err := fencelock.New(bridge.New(old, redislock.New(rdb, nil)), nil)
//
// A lock of this format has no line, so claims that wait ask again, and no fencing token before
// the bridge. It is lost if the server loses its data or a replica without the key takes over.
package setnx

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Lock takes locks in one Redis. Its methods may be called from many goroutines at once. Each is
// one request.
type Lock struct {
	rdb    redis.UniversalClient
	prefix string
}

// New returns a Lock on rdb, which stays the caller's. The lock of a key is the Redis key with that
// name behind prefix, as the other library has it: "mutex:" for redis-semaphore, and otherwise
// mostly "".
func New(rdb redis.UniversalClient, prefix string) *Lock { return &Lock{rdb, prefix} }

// Name returns "redis SET NX".
func (l *Lock) Name() string { return "redis SET NX" }

// Close does nothing.
func (l *Lock) Close() error { return nil }

var (
	try = redis.NewScript(`
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)

	renew = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)

	release = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`)
)

// Try takes the lock of key for ttl, or starts its lease again if it has the value id.
func (l *Lock) Try(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return l.run(ctx, try, key, id, milliseconds(ttl))
}

// Renew starts the lease of a lock that has the value id again.
func (l *Lock) Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return l.run(ctx, renew, key, id, milliseconds(ttl))
}

// Release deletes a lock that has the value id.
func (l *Lock) Release(ctx context.Context, key, id string) (bool, error) {
	return l.run(ctx, release, key, id)
}

func (l *Lock) run(ctx context.Context, s *redis.Script, key string, args ...any) (bool, error) {
	n, err := s.Run(ctx, l.rdb, []string{l.prefix + key}, args...).Int()
	return n == 1, err
}

// milliseconds rounds up: a lease never ends before its holder believes.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
