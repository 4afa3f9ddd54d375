//go:build verify

package nats_test

import (
	"testing"

	"github.com/fencelock/fencelock/drivertest"
)

// The seeds are the same each time: what they find stays found.
func TestAnswersAreThoseOfTheModelAlways(t *testing.T) {
	seeds := make([]uint64, 200)
	for i := range seeds {
		seeds[i] = uint64(1000 + i)
	}
	drivertest.Model(t, bucket(t).open, seeds...)
}
