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
