package fencelock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// The context of a lease says what it holds. Asking for it again would be to wait
// for oneself, and is an error, unless the inner caller says that it may share.
func ExampleReentrant() {
	client := fencelock.New(memlock.New(), nil)
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
