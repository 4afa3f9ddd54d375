package fencelock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// A lock is taken, worked under, and given back. The line after Lock is always the
// same: go on with the lease's context, which ends when the lock is lost.
func ExampleClient_Lock() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()

	ship := func(ctx context.Context, order string) (err error) {
		lease, err := client.Lock(ctx, "orders/"+order)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lease.Release(ctx)) }()
		ctx = lease.Context()

		// Work under ctx, and send lease.Token() along with every write.
		fmt.Println("shipping", order, ctx.Err() == nil, lease.Token() > 0)
		return nil
	}
	fmt.Println(ship(context.Background(), "42"))
	// Output:
	// shipping 42 true true
	// <nil>
}

// Every grant has a larger token than the one before, also when the lock passes
// from goroutine to goroutine inside one process.
func ExampleLease_Token() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	first, _ := client.Lock(ctx, "orders/42")
	first.Release(ctx)
	second, _ := client.Lock(ctx, "orders/42")
	second.Release(ctx)

	fmt.Println(second.Token() > first.Token())
	// Output: true
}
