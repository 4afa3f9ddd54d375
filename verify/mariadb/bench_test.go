package mariadb_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/driver"
)

// BenchmarkFreeLock is a lock that nobody else wants, taken and given back.
func BenchmarkFreeLock(b *testing.B) {
	be := backend(b, openDSN(b, newDSN(b, "")))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		t, err := be.Enter(ctx, claim("orders/42"))
		if err != nil || !t.Granted {
			b.Fatal(t.Granted, err)
		}
		if err := be.Leave(ctx, t, driver.Exit{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRoundTrip is what one statement costs that does nothing.
func BenchmarkRoundTrip(b *testing.B) {
	db := openDSN(b, newDSN(b, ""))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for b.Loop() {
		var n int
		if err := db.QueryRowContext(ctx, "SELECT 1").Scan(&n); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRenew1000 renews a thousand leases at once.
func BenchmarkRenew1000(b *testing.B) {
	be := backend(b, openDSN(b, newDSN(b, "")))
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
	for _, t := range ts {
		leave(b, be, t)
	}
}

// BenchmarkHandOver passes a lock between two goroutines of one process.
func BenchmarkHandOver(b *testing.B) {
	be := backend(b, openDSN(b, newDSN(b, "")))
	var wg sync.WaitGroup
	n := b.N
	for range 2 {
		wg.Go(func() {
			ctx := context.Background()
			for range n {
				t, err := take(be, claim("k"))
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

// BenchmarkLongLine enters and leaves behind a line of a thousand.
func BenchmarkLongLine(b *testing.B) {
	be := backend(b, openDSN(b, newDSN(b, "")))
	var ts []driver.Ticket
	for range 1000 {
		ts = append(ts, enter(b, be, claim("k")))
	}
	for b.Loop() {
		leave(b, be, enter(b, be, claim("k")))
	}
	for i := range ts {
		leave(b, be, ts[len(ts)-1-i])
	}
}
