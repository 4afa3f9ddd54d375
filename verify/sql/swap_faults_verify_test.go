//go:build verify

package sql_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// TestSwapStatementsAreEndedUnderLoad has clients take locks while the server ends their statements.
func TestSwapStatementsAreEndedUnderLoad(t *testing.T) {
	eachEnding(t, false, func(t *testing.T, s *store, begin func(context.Context, *sync.WaitGroup)) {
		open := s.swapping(t)
		contend(t, 3*time.Second, func(context.Context) driver.Backend { return open(t) }, begin,
			func(held int64) bool { return held >= 20 })
	})
}
