package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// BenchmarkFreeLock is the price of a lock that nobody else wants, on three Redis
// servers of this machine.
func BenchmarkFreeLock(b *testing.B) {
	var addrs []string
	for range 3 {
		addrs = append(addrs, testserver.Redis(b).Addr())
	}
	q, end := quorumOf(addrs, lasting)
	defer end()
	ctx := context.Background()
	steps.Must(b, q.Initialise(ctx))
	c := driver.Claim{
		Key: "k", ID: "0123456789abcdef0123456789abcdef", Owner: "bench",
		Capacity: driver.RW, Weight: driver.RW, TTL: 30 * time.Second, NoWait: true, Span: 1,
	}
	b.ReportAllocs()
	for b.Loop() {
		t, err := q.Enter(ctx, c)
		steps.Must(b, err)
		steps.Must(b, q.Leave(ctx, t, driver.Exit{}))
	}
}
