package bridge

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/redislock/redisson"
	"github.com/fencelock/fencelock/redislock/setnx"
	"github.com/redis/go-redis/v9"
)

// A server that refuses the lock of another library has done nothing, and the error says so. A program that waits goes
// on where that may change, and is told at once where it will not.
func TestServerThatRefusesAForeignLockHasDoneNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cause []any
		stays bool
	}{
		"out of memory":         {[]any{"CONFIG", "SET", "maxmemory", "1"}, false},
		"too few replicas":      {[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, false},
		"the user has no right": {[]any{"ACL", "SETUSER", "default", "-set", "-hset"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr()})
			t.Cleanup(func() { rdb.Close() })
			steps.Must(t, rdb.Do(t.Context(), tt.cause...).Err())
			for format, lock := range map[string]bridge.ForeignLock{
				"setnx": setnx.New(rdb, "mutex:"), "redisson": redisson.New(rdb, ""),
			} {
				c := client(t, bridge.New(bridge.Foreign(lock), memlock.New()), lease)
				_, err := c.TryLock(t.Context(), "key")
				if !errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrPermanent) != tt.stays {
					t.Errorf("%s: TryLock returned %v; want a refusal, for good: %v", format, err, tt.stays)
				}
			}
		})
	}
}

// A step that a reset connection has lost is not sent again by go-redis: the refusal of a second copy would say nothing
// of the first.
func TestStepOfAForeignLockIsSentOnce(t *testing.T) {
	t.Parallel()
	p := faultproxy.Start(t, testserver.Redis(t).Addr(), faultproxy.Redis)
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr()})
	t.Cleanup(func() { rdb.Close() })
	lock := setnx.New(rdb, "")
	if ok, err := lock.Try(t.Context(), "other", "id", lease); !ok || err != nil {
		t.Fatal(ok, err) // the server knows the script now
	}
	var sent atomic.Int32
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if !strings.EqualFold(r.Args()[0], "evalsha") {
			return faultproxy.Pass
		}
		sent.Add(1)
		return faultproxy.DropAnswer
	})
	if _, err := lock.Try(t.Context(), "key", "id", lease); err == nil || errors.Is(err, driver.ErrRefused) {
		t.Errorf("Try returned %v; want an error with an unknown outcome", err)
	}
	if n := sent.Load(); n != 1 {
		t.Errorf("Try was sent %d times; want once", n)
	}
}
