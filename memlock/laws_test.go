package memlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/memlock"
)

// shared opens views of one Store: each is the Store itself.
func shared() drivertest.Opener {
	store := memlock.New()
	return func(*testing.T) driver.Backend { return store }
}

//verify:fault Memory | the laws
func TestStoreKeepsTheLawsInVirtualTime(t *testing.T) {
	drivertest.Run(t, shared(), drivertest.InBubbles(), drivertest.KeepsServing(), drivertest.ExpiryLag(0))
}

//verify:fault Memory | the laws
func TestStoreKeepsTheLawsInRealTime(t *testing.T) {
	drivertest.Run(t, shared(), drivertest.KeepsServing(),
		drivertest.ExpiryLag(time.Millisecond), drivertest.Lease(60*time.Millisecond))
}

// The same seeds each time: what they find stays found. Three more are drawn.
//
//verify:fault Memory | answers as the model does
func TestStoreAnswersAsTheModelSays(t *testing.T) {
	fixed := steps.Seeds(100)
	t.Run("WithoutExpiry", func(t *testing.T) { drivertest.Model(t, shared(), fixed...) })
	t.Run("WithExpiry", func(t *testing.T) { drivertest.ModelInBubbles(t, shared(), fixed...) })
	t.Run("Drawn", func(t *testing.T) { drivertest.ModelInBubbles(t, shared()) })
}

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
