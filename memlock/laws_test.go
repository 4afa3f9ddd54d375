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

// The waiter sleeps until the lease ahead would end. Then its holder leaves, and lingers for a moment.
func TestWaiterIsGrantedWhenALingerThatBeganWhileItSleptEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlock.New()
		first := steps.Hold(t, s, steps.Claim("k"))
		granted := steps.Await(t, s, steps.Wait(t, s, steps.Claim("k")))
		synctest.Wait()
		left := time.Now()
		steps.Leave(t, s, first, driver.Exit{Linger: 100 * time.Millisecond})
		<-granted
		steps.TookAtMost(t, left, 110*time.Millisecond)
	})
}
