package sql_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/driver"
)

// benchmarks runs one on each database.
func benchmarks(b *testing.B, f func(b *testing.B, s *store)) {
	for _, k := range all {
		b.Run(k.name, func(b *testing.B) {
			f(b, k.with("exec", map[string][]string{"Postgres": {"default_query_exec_mode=exec"}}[k.name]...).store(b))
		})
	}
}

// BenchmarkFreeLock is a lock that nobody else wants, taken and given back, beside a statement
// that does nothing.
func BenchmarkFreeLock(b *testing.B) {
	benchmarks(b, func(b *testing.B, s *store) {
		db := s.open(b)
		be := s.backendOn(b, db)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		b.Run("Lock", func(b *testing.B) {
			b.ReportAllocs()
			c := claim("orders/42")
			for b.Loop() {
				t, err := be.Enter(ctx, c)
				if err == nil {
					err = be.Leave(ctx, t, driver.Exit{})
				}
				must(b, err)
			}
		})
		b.Run("Select", func(b *testing.B) {
			for b.Loop() {
				var n int
				must(b, db.QueryRowContext(ctx, "SELECT 1").Scan(&n))
			}
		})
	})
}

// BenchmarkRenew1000 renews a thousand leases at once.
func BenchmarkRenew1000(b *testing.B) {
	benchmarks(b, func(b *testing.B, s *store) {
		be := s.polling(b)
		var ts []driver.Ticket
		for i := range 1000 {
			ts = append(ts, hold(b, be, claim(fmt.Sprint("key", i))))
		}
		for b.Loop() {
			renewed(b, be, ts...)
		}
		leave(b, be, ts...)
	})
}

// BenchmarkHandOver passes a lock from one Backend to another.
func BenchmarkHandOver(b *testing.B) {
	benchmarks(b, func(b *testing.B, s *store) {
		mine, other := s.backend(b), s.backend(b)
		holder := hold(b, mine, claim("k"))
		for b.Loop() {
			w := wait(b, other, claim("k"))
			leave(b, mine, holder)
			holder = granted(b, other, w)
			mine, other = other, mine
		}
		leave(b, mine, holder)
	})
}

// BenchmarkLongLine enters and leaves behind a thousand others.
func BenchmarkLongLine(b *testing.B) {
	benchmarks(b, func(b *testing.B, s *store) {
		be := s.polling(b)
		for range 1000 {
			enter(b, be, claim("k"))
		}
		for b.Loop() {
			leave(b, be, enter(b, be, claim("k")))
		}
		leaveAll(b, be)
	})
}

// BenchmarkKeys is 64 goroutines that take and give back a lock each, the same one or a new one each time.
func BenchmarkKeys(b *testing.B) {
	benchmarks(b, func(b *testing.B, s *store) {
		be := s.polling(b)
		for _, keys := range []string{"Same", "New"} {
			b.Run(keys, func(b *testing.B) {
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				for i := range 64 {
					all.Go(func() {
						c := claim(fmt.Sprint("orders/", i))
						for n := left.Add(-1); n >= 0; n = left.Add(-1) {
							if keys == "New" {
								c = claim(fmt.Sprint("orders/", b.N, "/", n))
							}
							t, err := be.Enter(b.Context(), c)
							if err == nil {
								err = be.Leave(b.Context(), t, driver.Exit{})
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
			})
		}
	})
}
