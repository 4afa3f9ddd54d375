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
	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/redislock/internal/scripted"
)

// Lock takes locks in one Redis. Its methods may be called from many goroutines at once. Each is
// one request.
type Lock struct{ scripted.Lock }

// New returns a Lock on rdb, which stays the caller's. The lock of a key is the Redis key with that
// name behind prefix, as the other library has it: "mutex:" for redis-semaphore, and otherwise
// mostly "".
func New(rdb redis.UniversalClient, prefix string) *Lock {
	return &Lock{scripted.New(&format, rdb, prefix)}
}

var format = scripted.Format{
	Name:   "redis SET NX",
	Keys:   func(name string) []string { return []string{name} },
	Holder: func(id string) string { return id },
	Try: redis.NewScript(`
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`),
	Renew: redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`),
	Release: redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`),
}
