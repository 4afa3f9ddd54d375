//go:build verify

package sql_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest"
)

func TestSwapKeepsTheLaws(t *testing.T) {
	each(t, everyWay, func(t *testing.T, s *store) {
		drivertest.Run(t, s.swapping(t), drivertest.ExpiryLag(100*time.Millisecond))
	})
}

func TestSwapUnderAwkwardSettings(t *testing.T) {
	each(t, awkward, func(t *testing.T, s *store) {
		s.settle(t)
		open := s.swapping(t)
		drivertest.Model(t, open, 1)
		essentials(t, open(t), open(t))
	})
}
