//go:build verify

package bridge

import (
	"testing"

	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/memlock"
)

func memory() drivertest.Opener {
	s := memlock.New()
	return func(*testing.T) driver.Backend { return s }
}

func TestBridgesKeepTheLaws(t *testing.T) {
	for name, stores := range map[string][2]drivertest.Opener{
		"from Redis to memory": {redisStore(t), memory()},
		"from memory to Redis": {memory(), redisStore(t)},
		"from Redis to Redis":  {redisStore(t), redisStore(t)},
		"from Redis to SQL":    {redisStore(t), postgresStore(t)},
		"from SQL to Redis":    {postgresStore(t), redisStore(t)},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) driver.Backend {
				return bridge.New(stores[0](t), stores[1](t))
			}, drivertest.TokenGrows())
		})
	}
}
