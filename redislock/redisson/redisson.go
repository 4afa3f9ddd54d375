// Package redisson takes locks that Redisson's RLock keeps in a Redis hash: one field, UUID:thread, with the
// number of entries. With bridge.Foreign it lets fencelock exclude Java programs that still use it:
//
//	old := bridge.Foreign(redisson.New(rdb, ""))
//	locks, err := fencelock.New(bridge.New(old, redislock.New(rdb, nil)), nil)
//
// A release publishes Redisson's message, so threads that wait in Redisson wake up. RFencedLock, RFairLock and
// read-write locks have other formats. A lock of this format has no line, so claims that wait ask again, and no
// fencing token before the bridge. It is lost if the server loses its data or a replica without it takes over.
package redisson

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Lock takes locks in one Redis. Its methods may be called from many goroutines at once. Each is one request.
type Lock struct {
	rdb    redis.UniversalClient
	prefix string
}

// New returns a Lock on rdb, which stays the caller's. The lock of a key is the one that
// redisson.getLock(prefix + key) returns.
func New(rdb redis.UniversalClient, prefix string) *Lock { return &Lock{rdb, prefix} }

// Name returns "Redisson".
func (l *Lock) Name() string { return "Redisson" }

// Close does nothing.
func (l *Lock) Close() error { return nil }

var (
	try = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], 1)
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)

	renew = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)

	release = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], 0)
return 1`)
)

// Try takes the lock of key for ttl, or starts its lease again if id holds it.
func (l *Lock) Try(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return l.run(ctx, try, key, field(id), milliseconds(ttl))
}

// Renew starts the lease of a lock that id holds again.
func (l *Lock) Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return l.run(ctx, renew, key, field(id), milliseconds(ttl))
}

// Release deletes a lock that id holds, and wakes threads that wait for it.
func (l *Lock) Release(ctx context.Context, key, id string) (bool, error) {
	return l.run(ctx, release, key, field(id))
}

func (l *Lock) run(ctx context.Context, s *redis.Script, key string, args ...any) (bool, error) {
	name := l.prefix + key
	n, err := s.Run(ctx, l.rdb, []string{name, channel(name)}, args...).Int()
	return n == 1, err
}

// field is what Redisson calls the name of a lock's holder: UUID:thread.
func field(id string) string { return id + ":1" }

// channel is where Redisson hears of the release of a lock: in the hash slot of the lock.
func channel(name string) string {
	if strings.Contains(name, "{") {
		return "redisson_lock__channel:" + name
	}
	return "redisson_lock__channel:{" + name + "}"
}

// milliseconds rounds up: a lease never ends before its holder believes.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
