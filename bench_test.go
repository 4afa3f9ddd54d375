package fencelock_test

import (
	"context"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// BenchmarkFreeLock is what the core adds to a store that answers at once.
func BenchmarkFreeLock(b *testing.B) {
	c := fencelock.New(memlock.New(), nil)
	defer c.Close()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		l, err := c.Lock(ctx, "orders/42")
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
