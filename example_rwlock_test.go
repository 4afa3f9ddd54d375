package fencelock_test

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// Readers share a key; a writer, which is simply Lock, has it alone. All are served
// in order of arrival.
func ExampleClient_RLock() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	reader1, _ := client.RLock(ctx, "config")
	reader2, _ := client.RLock(ctx, "config")
	_, err := client.TryLock(ctx, "config")
	fmt.Println("a writer beside readers:", err == nil)

	reader1.Release(ctx)
	reader2.Release(ctx)
	writer, err := client.TryLock(ctx, "config")
	fmt.Println("a writer afterwards:", err == nil)
	writer.Release(ctx)
	// Output:
	// a writer beside readers: false
	// a writer afterwards: true
}
