package bridge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// counted counts the requests to a store.
type counted struct {
	*memlock.Store
	n map[string]int
}

func (s *counted) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	s.n["enter"]++
	return s.Store.Enter(ctx, c)
}

func (s *counted) Renew(ctx context.Context, ts []driver.Ticket) []error {
	s.n["renew"]++
	return s.Store.Renew(ctx, ts)
}

func (s *counted) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	s.n["leave"]++
	return s.Store.Leave(ctx, t, e)
}

// A bridge costs the requests of both stores, and not one more.
func TestLockCostsTheRequestsOfBothStores(t *testing.T) {
	use := func(t *testing.T, b driver.Backend) {
		c, err := fencelock.New(b, &fencelock.Options{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 3 {
			l, err := c.Lock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // of renewals
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		alone := &counted{memlock.New(), map[string]int{}}
		use(t, alone)
		old, new := &counted{memlock.New(), map[string]int{}}, &counted{memlock.New(), map[string]int{}}
		use(t, bridge.New(old, new))
		if alone.n["enter"] != 3 || alone.n["leave"] != 3 || alone.n["renew"] < 6 {
			t.Errorf("one store alone costs %v", alone.n)
		}
		for _, n := range []map[string]int{old.n, new.n} { // renewals have jitter
			if n["enter"] != 3 || n["leave"] != 3 || n["renew"] < 6 || n["renew"] > 2*alone.n["renew"] {
				t.Errorf("one store of a bridge costs %v; want %v", n, alone.n)
			}
		}
	})
}
