package sql_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/driver"
)

// BenchmarkOldAndNew compares the steps that are procedures with those that are swaps, on one database: a free
// lock, 64 locks at once, and one that goes from process to process.
func BenchmarkOldAndNew(b *testing.B) {
	benchmarks(b, func(b *testing.B, s *store) {
		open := s.swaps(b, "app_")
		for _, way := range []struct {
			name string
			open func(tb testing.TB) driver.Backend
		}{
			{"Old", func(tb testing.TB) driver.Backend { return s.backend(tb) }},
			{"New", func(tb testing.TB) driver.Backend { return open(tb) }},
		} {
			b.Run("Free/"+way.name, func(b *testing.B) {
				be, c := way.open(b), claim("free")
				for b.Loop() {
					leave(b, be, hold(b, be, c))
				}
			})
			b.Run("64Keys/"+way.name, func(b *testing.B) {
				be, n := way.open(b), atomic.Int64{}
				b.SetParallelism(32) // on two processors
				b.RunParallel(func(pb *testing.PB) {
					c := claim(fmt.Sprint("key", n.Add(1)))
					for pb.Next() {
						if t, err := be.Enter(context.Background(), c); err != nil {
							b.Error(err)
						} else if err := be.Leave(context.Background(), t, driver.Exit{}); err != nil {
							b.Error(err)
						}
					}
				})
			})
			b.Run("HandOver/"+way.name, func(b *testing.B) {
				mine, other := way.open(b), way.open(b)
				holder := hold(b, mine, claim("hot"))
				for b.Loop() {
					w := wait(b, other, claim("hot"))
					leave(b, mine, holder)
					holder = granted(b, other, w)
					mine, other = other, mine
				}
				leave(b, mine, holder)
			})
		}
	})
}
