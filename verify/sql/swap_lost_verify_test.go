//go:build verify

package sql_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/swaplock"
)

// losing loses every other swap, as if another process had written first.
type losing struct{ *swapsql.Store }

func (s losing) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	if rand.IntN(2) == 0 {
		return "", ctx.Err()
	}
	return s.Store.Swap(ctx, key, c)
}

// Where swaps are lost, others are asked by messages to do the step.
func TestSwapAnswersAsTheModelSaysWhenSwapsAreLost(t *testing.T) {
	each(t, []kind{postgres, pgBouncer, mariaDB}, func(t *testing.T, s *store) {
		use(t, s.backend(t), "tables")
		drivertest.Model(t, func(t *testing.T) driver.Backend {
			b := swaplock.New(losing{swapStore(s.open(t), s.dialect)})
			t.Cleanup(func() { b.Close() })
			return b
		}, 1, 2)
	})
}
