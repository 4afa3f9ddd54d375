package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// The context of a lost lock ends, and its cause says why. Here
// an operator ended the grant.
func ExampleLease_Context() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Lock(ctx, "migration")
	if err != nil {
		fmt.Println(err)
		return
	}
	client.Break(ctx, "migration", lease.Token(), fencelock.Break{Reason: "replaced by release 7"})

	<-lease.Context().Done()
	switch cause := context.Cause(lease.Context()); {
	case errors.Is(cause, fencelock.ErrExpired):
		fmt.Println("nobody could renew it in time")
	case errors.Is(cause, fencelock.ErrBroken):
		fmt.Println("an operator took it away")
	case errors.Is(cause, fencelock.ErrReleased):
		fmt.Println("it was given back")
	}
	fmt.Println("lost:", errors.Is(lease.Release(ctx), fencelock.ErrLost))
	// Output:
	// an operator took it away
	// lost: true
}

// Between two steps of the work, Err reports at once and without a round trip whether
// the lock is still held, also after the process was paused.
func ExampleLease_Err() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()

	err := client.Do(context.Background(), "import", func(ctx context.Context, lease *fencelock.Lease) error {
		for row := range 3 {
			if err := lease.Err(); err != nil {
				return err
			}
			fmt.Println("row", row)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// row 0
	// row 1
	// row 2
	// <nil>
}

// A program that ends lets its holders finish, and ends them when time is up.
func ExampleClient_Shutdown() {
	client, _ := fencelock.New(memlock.New(), nil)
	ctx := context.Background()
	lease, _ := client.Lock(ctx, "job")

	patience, cancel := context.WithCancel(ctx)
	cancel() // no patience at all
	err := client.Shutdown(patience)
	fmt.Println(errors.Is(err, context.Canceled), errors.Is(lease.Err(), fencelock.ErrClosed))
	// Output: true true
}

// An operator wants the lock in half an hour. The holder finishes its step and releases it before.
func ExampleLease_Revoked() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Lock(ctx, "import")
	if err != nil {
		fmt.Println(err)
		return
	}
	how := fencelock.Break{Reason: "release 7", Notice: 30 * time.Minute}
	if err := client.Break(ctx, "import", lease.Token(), how); err != nil {
		fmt.Println(err)
	}

	select {
	case <-lease.Revoked():
		reason, end := lease.Revocation()
		fmt.Println(reason, "in", time.Until(end).Round(10*time.Minute))
		fmt.Println("released:", lease.Release(ctx))
	case <-lease.Context().Done():
	}
	// Output:
	// release 7 in 30m0s
	// released: <nil>
}
