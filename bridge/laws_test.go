package bridge_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
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

// counted counts the requests to a store.
type counted struct {
	*memlock.Store
	enter, renew, leave atomic.Int32
}

func (s *counted) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	s.enter.Add(1)
	return s.Store.Enter(ctx, c)
}

func (s *counted) Renew(ctx context.Context, ts []driver.Ticket) []error {
	s.renew.Add(1)
	return s.Store.Renew(ctx, ts)
}

func (s *counted) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	s.leave.Add(1)
	return s.Store.Leave(ctx, t, e)
}

// A bridge costs the requests of both stores, and not one more.
func TestLockCostsTheRequestsOfBothStores(t *testing.T) {
	use := func(t *testing.T, b driver.Backend) {
		c, err := fencelock.New(b, &fencelock.Options{TTL: 30 * time.Second})
		steps.Must(t, err)
		defer c.Close()
		for range 3 {
			l, err := c.Lock(t.Context(), "k")
			steps.Must(t, err)
			time.Sleep(time.Minute) // of renewals
			steps.Must(t, l.Release(t.Context()))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		alone, old, new := &counted{Store: memlock.New()}, &counted{Store: memlock.New()}, &counted{Store: memlock.New()}
		use(t, alone)
		use(t, bridge.New(old, new))
		for name, s := range map[string]*counted{"alone": alone, "the old store": old, "the new store": new} {
			enter, renew, leave := s.enter.Load(), s.renew.Load(), s.leave.Load()
			if enter != 3 || leave != 3 || renew < 6 || renew > 60 { // renewals have jitter
				t.Errorf("%s: %d Enters, %d renewals, %d Leaves", name, enter, renew, leave)
			}
		}
	})
}
