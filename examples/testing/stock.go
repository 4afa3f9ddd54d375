// Package stock is code that works under a lock, written so that its tests can see
// what it does when the lock is lost.
package stock

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

// Shelf is where the numbers are kept. Get and Set remember the largest token that they have seen, and
// refuse a smaller one. Get has the token because an older holder could otherwise write after it.
type Shelf interface {
	Get(ctx context.Context, item string, token fence.Token) (int, error)
	Set(ctx context.Context, item string, n int, token fence.Token) error
}

// Take takes n pieces of item off the shelf, one caller at a time.
func Take(ctx context.Context, locks *fencelock.Client, s Shelf, item string, n int) error {
	return locks.Do(ctx, "stock/"+item, func(ctx context.Context, l *fencelock.Lease) error {
		have, err := s.Get(ctx, item, l.Token())
		if err != nil {
			return err
		}
		if have < n {
			return fmt.Errorf("%s: %d wanted, %d there", item, n, have)
		}
		return s.Set(ctx, item, have-n, l.Token())
	})
}
