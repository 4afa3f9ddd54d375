package sqlite_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/driver"
)

// BenchmarkFreeLock is a lock that nobody else wants, taken and given back.
func BenchmarkFreeLock(b *testing.B) {
	be := backend(b, openFile(b, newFile(b)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := claim("orders/42")
	b.ReportAllocs()
	for b.Loop() {
		t, err := be.Enter(ctx, c)
		if err != nil || !t.Granted {
			b.Fatal(t.Granted, err)
		}
		if err := be.Leave(ctx, t, driver.Exit{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRenew renews a thousand leases at once.
func BenchmarkRenew1000(b *testing.B) {
	be := backend(b, openFile(b, newFile(b)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ts []driver.Ticket
	for i := range 1000 {
		t, err := be.Enter(ctx, claim(fmt.Sprint("key", i)))
		if err != nil {
			b.Fatal(err)
		}
		ts = append(ts, t)
	}
	for b.Loop() {
		for _, err := range be.Renew(ctx, ts) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkHandOver passes a lock between two goroutines of one process.
func BenchmarkHandOver(b *testing.B) {
	be := backend(b, openFile(b, newFile(b)))
	var wg sync.WaitGroup
	n := b.N
	for range 2 {
		wg.Go(func() {
			ctx := context.Background()
			for range n {
				t, err := be.Enter(ctx, claim("k"))
				for err == nil && !t.Granted {
					t, err = be.Await(ctx, t)
				}
				if err == nil {
					err = be.Leave(ctx, t, driver.Exit{})
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkLongLine enters and leaves behind 10 000 others.
func BenchmarkLongLine(b *testing.B) {
	be := backend(b, openFile(b, newFile(b)))
	ctx := context.Background()
	for range 10000 {
		if _, err := be.Enter(ctx, claim("k")); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		t, err := be.Enter(ctx, claim("k"))
		if err != nil {
			b.Fatal(err)
		}
		if err := be.Leave(ctx, t, driver.Exit{}); err != nil {
			b.Fatal(err)
		}
	}
}
