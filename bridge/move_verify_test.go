//go:build verify

package bridge_test

import (
	"fmt"
	"testing"
)

func TestFleetMovesThereAndBackManyTimes(t *testing.T) {
	for _, seed := range seeds(t, 300) {
		for _, faults := range []bool{false, true} {
			t.Run(fmt.Sprintf("faults=%v/seed=%d", faults, seed), func(t *testing.T) {
				for _, wrong := range move(t, seed, faults, thereAndBack...) {
					t.Error(wrong)
				}
			})
		}
	}
}
