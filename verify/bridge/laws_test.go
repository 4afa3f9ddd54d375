//go:build verify

package bridge

import (
	"testing"

	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
)

// redisStore opens views of a Redis of its own.
func redisStore(t *testing.T) drivertest.Opener {
	t.Helper()
	addr := testserver.Redis(t).Addr()
	return func(t *testing.T) driver.Backend {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		b := redislock.New(rdb, nil)
		t.Cleanup(func() { b.Close(); rdb.Close() })
		return b
	}
}

func memory() drivertest.Opener {
	s := memlock.New()
	return func(*testing.T) driver.Backend { return s }
}

func TestBridgesKeepTheLaws(t *testing.T) {
	for name, stores := range map[string][2]drivertest.Opener{
		"from Redis to memory": {redisStore(t), memory()},
		"from memory to Redis": {memory(), redisStore(t)},
		"from Redis to Redis":  {redisStore(t), redisStore(t)},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) driver.Backend {
				return bridge.New(stores[0](t), stores[1](t))
			}, drivertest.TokenGrows())
		})
	}
}
