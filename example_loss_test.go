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
	client.Break(ctx, "migration", lease.Token(), "replaced by release 7", 0)

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

// An operator wants the lock. The holder is asked first, finishes its step and releases it.
func ExampleClient_Revoke() {
	client, _ := fencelock.New(memlock.New(), &fencelock.Options{Owner: "ops"})
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Lock(ctx, "import")
	if err != nil {
		fmt.Println(err)
		return
	}
	asked := lease.Revoked() // the holder wants to know
	go func() {
		select {
		case <-asked:
			fmt.Println(lease.Revocation().Owner, "asks:", lease.Revocation().Note)
			lease.Release(ctx)
		case <-lease.Context().Done():
		}
	}()

	broken, err := client.Revoke(ctx, "import", lease.Token(), "release 7", 30*time.Second, 0)
	fmt.Println("broken:", broken, err)
	// Output:
	// ops asks: release 7
	// broken: false <nil>
}
