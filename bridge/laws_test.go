package bridge_test

import (
	"testing"

	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/memlock"
)

// bridges opens views of one bridge from memory to memory.
func bridges() drivertest.Opener {
	old, new := memlock.New(), memlock.New()
	return func(*testing.T) driver.Backend { return bridge.New(old, new) }
}

func TestBridgeKeepsTheLaws(t *testing.T) {
	drivertest.Run(t, bridges(), drivertest.InBubbles(), drivertest.TokenGrows(),
		drivertest.ExpiryLag(0))
}
