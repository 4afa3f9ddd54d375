package fencelock_test

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// Two accounts at once. However the keys are given, all callers take them in the
// same order, so no two can wait for each other.
func ExampleClient_LockAll() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	both, err := client.LockAll(ctx, []string{"account/9", "account/7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = both.Do(ctx, func(ctx context.Context, both *fencelock.MultiLease) error {
		for _, lease := range both.Leases() {
			fmt.Println(lease.Key(), lease.Err())
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// account/7 <nil>
	// account/9 <nil>
	// <nil>
}
