//go:build verify

package memlock_test

import (
	"testing"

	"github.com/fencelock/fencelock/drivertest"
)

func TestStoreAnswersAsTheModelSaysAlways(t *testing.T) {
	seeds := make([]uint64, 200)
	for i := range seeds {
		seeds[i] = uint64(1000 + i)
	}
	t.Run("WithoutExpiry", func(t *testing.T) { drivertest.Model(t, shared(), seeds...) })
	t.Run("WithExpiry", func(t *testing.T) { drivertest.ModelInBubbles(t, shared(), seeds...) })
}
