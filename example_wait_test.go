package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// Wait bounds the waiting, and only that: what has been granted is held until it is
// released. A ctx with a deadline would bound both.
func ExampleWait() {
	client := fencelock.New(memlock.New(), &fencelock.Options{Owner: "web-3"})
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Lock(ctx, "orders/42", fencelock.Wait(5*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)

	_, err = client.Lock(ctx, "orders/42", fencelock.Wait(10*time.Millisecond))
	fmt.Println(errors.Is(err, fencelock.ErrNotAcquired))
	// Output: true
}
