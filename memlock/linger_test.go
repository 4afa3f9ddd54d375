package memlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/memlock"
)

func TestWaiterIsGrantedWhenALingerThatBeganWhileItSleptEnds(t *testing.T) {
	// The waiter sleeps until the lease ahead would end, a minute from now. Then its
	// holder leaves and lingers for a moment.
	synctest.Test(t, func(t *testing.T) {
		s := memlock.New()
		c := driver.Claim{Key: "k", ID: "a", Owner: "o", Capacity: driver.RW, Weight: driver.RW, TTL: time.Minute, Span: 1}
		first, err := s.Enter(t.Context(), c)
		steps.Must(t, err)
		c.ID = "b"
		k, err := s.Enter(t.Context(), c)
		steps.Must(t, err)
		granted := make(chan time.Time)
		go func() {
			for !k.Granted {
				if k, err = s.Await(t.Context(), k); err != nil {
					t.Error(err)
					break
				}
			}
			granted <- time.Now()
		}()
		synctest.Wait()
		left := time.Now()
		steps.Must(t, s.Leave(t.Context(), first, driver.Exit{Linger: 100 * time.Millisecond}))
		if d := (<-granted).Sub(left); d > 110*time.Millisecond {
			t.Errorf("granted %v after a linger of 100ms began", d)
		}
	})
}
