//go:build verify

package bridge_test

import (
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/drivertest"
)

func TestFleetMovesThereAndBackManyTimes(t *testing.T) {
	for _, seed := range drivertest.Seeds(t, 300) {
		for _, faults := range []bool{false, true} {
			t.Run(fmt.Sprintf("faults=%v/seed=%d", faults, seed), func(t *testing.T) {
				for _, wrong := range move(t, seed, faults, thereAndBack...) {
					t.Error(wrong)
				}
			})
		}
	}
}
