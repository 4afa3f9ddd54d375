package fencelock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// Do is Lock, work and Release in one: the error is that of the work, joined with
// ErrLost if the lock was lost meanwhile.
func ExampleClient_Do() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()

	err := client.Do(context.Background(), "report", func(ctx context.Context, lease *fencelock.Lease) error {
		fmt.Println("alone with", lease.Key())
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// alone with report
	// <nil>
}

// Any lease can be worked under in this way, permits of a semaphore for example.
func ExampleLease_Do() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Semaphore("uploads", 3).Acquire(ctx, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = lease.Do(ctx, func(ctx context.Context, _ *fencelock.Lease) error {
		fmt.Println("uploading")
		return nil
	})
	fmt.Println(err, errors.Is(lease.Err(), fencelock.ErrReleased))
	// Output:
	// uploading
	// <nil> true
}
