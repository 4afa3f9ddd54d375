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
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/redislock/internal/scripted"
)

// Lock takes locks in one Redis. Its methods may be called from many goroutines at once. Each is one request.
type Lock struct{ scripted.Lock }

// New returns a Lock on rdb, which stays the caller's. The lock of a key is the one that
// redisson.getLock(prefix + key) returns.
func New(rdb redis.UniversalClient, prefix string) *Lock {
	return &Lock{scripted.New(&format, rdb, prefix)}
}

var format = scripted.Format{
	Name:   "Redisson",
	Keys:   func(name string) []string { return []string{name, channel(name)} },
	Holder: func(id string) string { return id + ":1" }, // UUID:thread
	Try: redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], 1)
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`),
	Renew: redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`),
	Release: redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], 0)
return 1`),
}

// channel is where Redisson hears of the release of a lock: in the hash slot of the lock.
func channel(name string) string {
	if strings.Contains(name, "{") {
		return "redisson_lock__channel:" + name
	}
	return "redisson_lock__channel:{" + name + "}"
}
