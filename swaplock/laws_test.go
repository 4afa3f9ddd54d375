package swaplock_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/swaplock"
)

// views opens views of one store.
func views(store swaplock.Store) drivertest.Opener {
	return func(t *testing.T) driver.Backend {
		b := swaplock.New(store)
		t.Cleanup(func() { b.Close() })
		return b
	}
}

// losing loses every other swap, as if another process had written first.
type losing struct{ *toy }

func (s losing) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	if rand.IntN(2) == 0 {
		return "", ctx.Err()
	}
	return s.toy.Swap(ctx, key, c)
}

// both runs f on a store in which claims cannot arrive, and on one in which they can.
func both(t *testing.T, f func(t *testing.T, open drivertest.Opener)) {
	t.Run("Swap", func(t *testing.T) { f(t, views(onlySwaps{newToy()})) })
	t.Run("Arrive", func(t *testing.T) { f(t, views(newToy())) })
}

func TestLawsInVirtualTime(t *testing.T) {
	drivertest.Run(t, views(newToy()), drivertest.InBubbles(), drivertest.ExpiryLag(0))
}

func TestAnswersAreThoseOfTheModel(t *testing.T) {
	both(t, func(t *testing.T, open drivertest.Opener) {
		t.Run("WithExpiry", func(t *testing.T) { drivertest.ModelInBubbles(t, open, append(steps.Seeds(8), 70, 200)...) })
		t.Run("Drawn", func(t *testing.T) { drivertest.ModelInBubbles(t, open) })
	})
}
