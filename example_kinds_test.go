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
	client, _ := fencelock.New(memlock.New(), nil)
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

// At most five connections to a partner, over all machines.
func ExampleClient_Acquire() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	bulk, err := client.Acquire(ctx, "partner-api", 4, 5)
	if err != nil {
		fmt.Println(err)
		return
	}
	single, err := client.Acquire(ctx, "partner-api", 1, 5, fencelock.Wait(0))
	fmt.Println("the fifth:", err == nil)
	_, err = client.Acquire(ctx, "partner-api", 1, 5, fencelock.Wait(0))
	fmt.Println("the sixth:", err == nil)

	bulk.Release(ctx)
	single.Release(ctx)
	// Output:
	// the fifth: true
	// the sixth: false
}

// Two accounts at once. However the keys are given, all callers take them in the
// same order, so no two can wait for each other.
func ExampleClient_LockAll() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	both, err := client.LockAll(ctx, []string{"account/9", "account/7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, lease := range both {
		fmt.Println(lease.Key(), lease.Err())
	}
	fmt.Println(both.Release(ctx))
	// Output:
	// account/7 <nil>
	// account/9 <nil>
	// <nil>
}
