package fencelock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// A function that must run under a lock can insist on it, and find the token for
// its writes, without a parameter for the lease.
func ExampleHeld() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()

	save := func(ctx context.Context) error {
		lease := fencelock.Held(ctx, "account/7")
		if lease == nil {
			return errors.New("save must run under the lock of the account")
		}
		fmt.Println("saved", lease.Token() > 0)
		return nil
	}
	ctx := context.Background()
	fmt.Println(save(ctx))
	fmt.Println(client.Do(ctx, "account/7", func(ctx context.Context, _ *fencelock.Lease) error { return save(ctx) }))
	// Output:
	// save must run under the lock of the account
	// saved true
	// <nil>
}

// A goroutine that outlives its caller must queue like a stranger.
func ExampleWithoutHolds() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()

	done := make(chan error)
	client.Do(context.Background(), "account/7", func(ctx context.Context, _ *fencelock.Lease) error {
		background := fencelock.WithoutHolds(context.WithoutCancel(ctx))
		go func() {
			done <- client.Do(background, "account/7", func(context.Context, *fencelock.Lease) error {
				fmt.Println("after the first one")
				return nil
			})
		}()
		fmt.Println("the first one")
		return nil
	})
	fmt.Println(<-done)
	// Output:
	// the first one
	// after the first one
	// <nil>
}
