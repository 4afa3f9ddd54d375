package steps

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/driver"
)

// Share has n goroutines of each backend take claims like c, one turn after another until ctx ends. It
// returns how many turns the first backend had, and each of the others on average.
func Share(ctx context.Context, t testing.TB, c driver.Claim, n int, backends ...driver.Backend) (first, other int64) {
	t.Helper()
	var turns [2]atomic.Int64
	var all sync.WaitGroup
	for i, b := range backends {
		count := &turns[min(i, 1)]
		for range n {
			all.Go(func() {
				for ctx.Err() == nil {
					if err := takeTurn(ctx, b, Another(c), count); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	return turns[0].Load(), turns[1].Load() / int64(max(len(backends)-1, 1))
}

func takeTurn(ctx context.Context, b driver.Backend, c driver.Claim, turns *atomic.Int64) error {
	ticket, err := b.Enter(ctx, c)
	for err == nil && !ticket.Granted {
		ticket, err = b.Await(ctx, ticket)
	}
	if err != nil {
		return err
	}
	turns.Add(1)
	return b.Leave(ctx, ticket, driver.Exit{})
}
