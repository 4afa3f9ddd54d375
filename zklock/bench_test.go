package zklock

import (
	"context"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// BenchmarkFreeLock takes and releases a lock that nobody else wants.
func BenchmarkFreeLock(b *testing.B) {
	s := testserver.ZooKeeper(b)
	x := connect(b, long, s)
	for b.Loop() {
		k, err := x.Enter(context.Background(), noWait(exclusive("k")))
		if err != nil || !k.Granted {
			b.Fatalf("%+v %v", k, err)
		}
		if err := x.Leave(context.Background(), k, driver.Exit{}); err != nil {
			b.Fatal(err)
		}
	}
}
