package memlock

import (
	"context"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// BenchmarkFreeLock is the price of a lock that nobody else wants.
func BenchmarkFreeLock(b *testing.B) {
	s, ctx, c := New(), context.Background(), wish("k", 1)
	b.ReportAllocs()
	for b.Loop() {
		t, err := s.Enter(ctx, c)
		if err != nil || !t.Granted {
			b.Fatal(t, err)
		}
		steps.Must(b, s.Leave(ctx, t, driver.Exit{}))
	}
}

// BenchmarkLongLine hands a lock on with 10 000 others in line: the first
// leaves, and a new one joins behind.
func BenchmarkLongLine(b *testing.B) {
	s, ctx := New(), context.Background()
	const waiters = 10000
	var line []driver.Ticket
	join := func(id int) {
		t, err := s.Enter(ctx, wish("k", id))
		steps.Must(b, err)
		line = append(line, t)
	}
	for i := range waiters {
		join(i)
	}
	next := waiters
	b.ReportAllocs()
	for b.Loop() {
		steps.Must(b, s.Leave(ctx, line[0], driver.Exit{}))
		line = line[1:]
		join(next)
		next++
	}
}
