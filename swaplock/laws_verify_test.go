//go:build verify

package swaplock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// stepLaws are all but those about keys, limits and looks: lines of two thousand, which are the same however a step
// reaches the store.
var stepLaws = drivertest.Topics("Grant", "Token", "Lease", "Expiry", "Leave", "Reserve", "Break", "Detach", "Named",
	"ReusedID", "Mark", "Linger", "Kind", "Wake", "Context", "Close", "Concurrent")

func TestLawsInRealTime(t *testing.T) {
	drivertest.Run(t, views(newToy()), drivertest.ExpiryLag(time.Millisecond))
}

func TestLawsWhenNothingArrives(t *testing.T) {
	drivertest.Run(t, views(onlySwaps{newToy()}), drivertest.InBubbles(), drivertest.ExpiryLag(0))
}

func TestLawsWithMessages(t *testing.T) {
	toy := newToy()
	drivertest.Run(t, views(notes{toy, toy, 0}), stepLaws, drivertest.InBubbles(), drivertest.ExpiryLag(0))
	toy = newToy()
	lost := views(notes{losing{toy}, toy, 0})
	drivertest.Run(t, lost, stepLaws, drivertest.InBubbles(), drivertest.ExpiryLag(50*time.Millisecond))
	drivertest.Model(t, lost, steps.Seeds(20)...)
}

func TestDirectoryKeepsTheLaws(t *testing.T) {
	store := &dirStore{dir: t.TempDir()}
	drivertest.Run(t, views(store), drivertest.InBubbles(), drivertest.ExpiryLag(10*time.Millisecond))
}

func TestLawsWhenSwapsAreLost(t *testing.T) {
	drivertest.Run(t, views(losing{newToy()}), stepLaws, drivertest.InBubbles(),
		drivertest.ExpiryLag(50*time.Millisecond))
}

func TestLawsWhenNothingIsPushed(t *testing.T) {
	drivertest.Run(t, views(polled{newToy()}), stepLaws, drivertest.InBubbles(),
		drivertest.ExpiryLag(10*time.Millisecond))
}

func TestAnswersAreThoseOfTheModelAlways(t *testing.T) {
	both(t, func(t *testing.T, open drivertest.Opener) {
		t.Run("WithoutExpiry", func(t *testing.T) { drivertest.Model(t, open, steps.Seeds(200)...) })
		t.Run("WithExpiry", func(t *testing.T) { drivertest.ModelInBubbles(t, open, steps.Seeds(200)...) })
	})
	t.Run("SwapsAreLost", func(t *testing.T) { drivertest.Model(t, views(losing{newToy()}), steps.Seeds(20)...) })
}

func TestCutConnectionsOfACrowdLetNoTwoIn(t *testing.T) {
	for _, arrive := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { letNoTwoIn(t, arrive, 12, 20) })
	}
}
