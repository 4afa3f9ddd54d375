package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// MaxHold ends even a lively holder: its context ends, and says so.
func ExampleMaxHold() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()

	err := client.Do(context.Background(), "k", func(ctx context.Context, _ *fencelock.Lease) error {
		<-ctx.Done() // work that would never end
		return nil
	}, fencelock.MaxHold(20*time.Millisecond))
	fmt.Println(errors.Is(err, fencelock.ErrMaxHold), errors.Is(err, fencelock.ErrLost))
	// Output: true true
}

// FixedLease is for those who cannot be renewed: a lock for an hour, no watchdog.
func ExampleFixedLease() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Lock(ctx, "maintenance", fencelock.FixedLease(time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(time.Until(lease.Deadline()).Round(time.Minute) <= time.Hour)
	fmt.Println(errors.Is(lease.Renew(ctx), fencelock.ErrInvalid))
	lease.Release(ctx)
	// Output:
	// true
	// true
}

// MinHold keeps the key taken though the work was quick, so that a machine whose
// clock is a little slow finds the job taken and not free again.
func ExampleMinHold() {
	client := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	client.Do(ctx, "job", func(context.Context, *fencelock.Lease) error { return nil }, fencelock.MinHold(time.Minute))
	_, err := client.TryLock(ctx, "job")
	fmt.Println(errors.Is(err, fencelock.ErrNotAcquired))
	// Output: true
}
