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
	client, _ := fencelock.New(memlock.New(), nil)
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
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Acquire(ctx, "uploads", 2, 3)
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

// A function that must run under a lock can insist on it, and find the token for
// its writes, without a parameter for the lease.
func ExampleHeld() {
	client, _ := fencelock.New(memlock.New(), nil)
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
	client, _ := fencelock.New(memlock.New(), nil)
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

// The context of a lease says what it holds. Asking for it again would be to wait
// for oneself, and is an error, unless the inner caller says that it may share.
func ExampleReentrant() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()

	audit := func(ctx context.Context, opts ...fencelock.Option) error {
		return client.Do(ctx, "account/7", func(context.Context, *fencelock.Lease) error {
			fmt.Println("auditing")
			return nil
		}, opts...)
	}
	err := client.Do(context.Background(), "account/7", func(ctx context.Context, _ *fencelock.Lease) error {
		fmt.Println("deadlock found:", errors.Is(audit(ctx), fencelock.ErrDeadlock))
		return audit(ctx, fencelock.Reentrant())
	})
	fmt.Println(err)
	// Output:
	// deadlock found: true
	// auditing
	// <nil>
}
