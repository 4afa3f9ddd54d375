package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/memlock"
)

// deadStore is a store that answers nothing.
func deadStore() *faulty.Backend {
	store := faulty.New(memlock.New(), 1, faulty.Options{})
	store.Pause()
	return store
}

// A pause that grows, up to two seconds.
func ExampleExponentialBackoff() {
	client, _ := fencelock.New(memlock.New(), &fencelock.Options{
		Backoff: fencelock.ExponentialBackoff(20*time.Millisecond, 2*time.Second),
	})
	defer client.Close()
	lease, err := client.Lock(context.Background(), "orders/42")
	fmt.Println(lease != nil, err)
	// Output: true <nil>
}

// A call that gives up after three requests without an answer. The error wraps the last one.
func ExampleRetry() {
	client, _ := fencelock.New(deadStore(), &fencelock.Options{TTL: 30 * time.Millisecond})
	defer client.Close()
	three := func(attempt int, last error) (pause time.Duration, again bool) {
		return time.Millisecond, attempt < 3
	}
	_, err := client.Lock(context.Background(), "orders/42", fencelock.Retry(three))
	fmt.Println(errors.Is(err, fencelock.ErrUnavailable))
	// Output: true
}

// The lease is extended where the work knows that it gets on. A loop that hangs loses it.
func ExampleNoRenewal() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Lock(ctx, "import", fencelock.NoRenewal(), fencelock.TTL(time.Minute))
	if err != nil {
		return
	}
	for _, row := range []string{"a", "b"} {
		fmt.Println("import", row)
		if err := lease.Renew(ctx); err != nil {
			return // ErrLost, or the store did not answer
		}
	}
	fmt.Println(lease.Err() == nil, lease.Release(ctx))
	// Output:
	// import a
	// import b
	// true <nil>
}

// New says what is wrong before anything is locked.
func ExampleNew() {
	client, err := fencelock.New(memlock.New(), &fencelock.Options{TTL: 30})
	fmt.Println(client == nil, err)
	// Output: true new: invalid: Options.TTL is 30ns, below 1ms; a duration needs a unit, as in 30*time.Second
}
