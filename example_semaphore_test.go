package fencelock_test

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// At most five connections to a partner, over all machines.
func ExampleClient_Semaphore() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()
	partner := client.Semaphore("partner-api", 5)

	bulk, err := partner.Acquire(ctx, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	single, err := partner.TryAcquire(ctx, 1)
	fmt.Println("the fifth:", err == nil)
	_, err = partner.TryAcquire(ctx, 1)
	fmt.Println("the sixth:", err == nil)

	bulk.Release(ctx)
	single.Release(ctx)
	// Output:
	// the fifth: true
	// the sixth: false
}
