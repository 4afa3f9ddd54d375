package fencelock_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// BenchmarkFreeLock is what the core adds to a store that answers at once.
func BenchmarkFreeLock(b *testing.B) {
	c := testclient.New(b, memlock.New(), nil)
	defer c.Close()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		l, err := c.Lock(ctx, "orders/42")
		must(b, err)
		must(b, l.Release(ctx))
	}
}

// BenchmarkHandOff has goroutines of one Client on one key: most grants pass from one to
// the next without asking the store.
func BenchmarkHandOff(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			c := testclient.New(b, memlock.New(), nil)
			defer c.Close()
			ctx := context.Background()
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var group sync.WaitGroup
			for range n {
				group.Go(func() {
					for left.Add(-1) >= 0 {
						l, err := c.Lock(ctx, "orders/42")
						if err != nil {
							b.Error(err)
							return
						}
						ok(b, l.Release(ctx))
					}
				})
			}
			group.Wait()
		})
	}
}

// BenchmarkHeldLease reports what a lease that is held takes of memory in the core and
// in its key; the store is another process as a rule, and here it is not.
func BenchmarkHeldLease(b *testing.B) {
	c := testclient.New(b, grantAll{}, nil)
	defer c.Close()
	ctx := context.Background()
	leases := make([]*fencelock.Lease, 0, b.N)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for i := range b.N {
		l, err := c.Lock(ctx, "orders/"+strconv.Itoa(i))
		must(b, err)
		leases = append(leases, l)
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(b.N), "bytes/lease")
	runtime.KeepAlive(leases)
}

// grantAll is a store that grants everything and remembers nothing.
type grantAll struct{ driver.Backend }

func (grantAll) Open() error       { return nil }
func (grantAll) Info() driver.Info { return memlock.New().Info() }
func (grantAll) Enter(_ context.Context, c driver.Claim) (driver.Ticket, error) {
	return driver.Ticket{Claim: c, Token: 1, Granted: true, Left: c.TTL}, nil
}
func (grantAll) Renew(_ context.Context, ts []driver.Ticket) []error     { return make([]error, len(ts)) }
func (grantAll) Leave(context.Context, driver.Ticket, driver.Exit) error { return nil }
func (grantAll) Close() error                                            { return nil }

// BenchmarkTick is what a holder pays to say that it makes progress.
func BenchmarkTick(b *testing.B) {
	c := testclient.New(b, memlock.New(), nil)
	l, err := c.Lock(context.Background(), "k", fencelock.Progress(time.Minute))
	must(b, err)
	for b.Loop() {
		l.Tick()
	}
}
