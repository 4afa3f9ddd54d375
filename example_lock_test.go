package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// A lock is taken, worked under, and given back. The line after Lock is always the
// same: go on with the lease's context, which ends when the lock is lost.
func ExampleClient_Lock() {
	client, _ := fencelock.New(memlock.New(), nil)
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
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	first, _ := client.Lock(ctx, "orders/42")
	first.Release(ctx)
	second, _ := client.Lock(ctx, "orders/42")
	second.Release(ctx)

	fmt.Println(second.Token() > first.Token())
	// Output: true
}

// A try takes the lock now or not at all. The refusal says who has it.
func ExampleClient_TryLock() {
	store := memlock.New() // shared, as a server would be
	web3, _ := fencelock.New(store, &fencelock.Options{Owner: "web-3"})
	web4, _ := fencelock.New(store, &fencelock.Options{Owner: "web-4"})
	defer web3.Close()
	defer web4.Close()
	ctx := context.Background()

	lease, err := web3.TryLock(ctx, "reindex", fencelock.Note("nightly"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)

	_, err = web4.TryLock(ctx, "reindex")
	var held *fencelock.HeldError
	switch {
	case errors.As(err, &held):
		fmt.Println(held.Key, "is held by", held.Owner, "for", held.Note)
	case errors.Is(err, fencelock.ErrUnavailable):
		fmt.Println("nobody knows:", err)
	}
	// Output: reindex is held by web-3 for nightly
}

// Wait bounds the waiting, and only that: what has been granted is held until it is
// released. A ctx with a deadline would bound both.
func ExampleWait() {
	client, _ := fencelock.New(memlock.New(), &fencelock.Options{Owner: "web-3"})
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Lock(ctx, "orders/42", fencelock.Wait(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)

	_, err = client.Lock(ctx, "orders/42", fencelock.Wait(10*time.Millisecond))
	fmt.Println(errors.Is(err, fencelock.ErrNotAcquired))
	// Output: true
}

// MaxHold ends even a lively holder: its context ends, and says so.
func ExampleMaxHold() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()

	err := client.Do(context.Background(), "k", func(ctx context.Context, _ *fencelock.Lease) error {
		<-ctx.Done() // work that would never end
		return nil
	}, fencelock.MaxHold(20*time.Millisecond))
	fmt.Println(errors.Is(err, fencelock.ErrMaxHold), errors.Is(err, fencelock.ErrLost))
	// Output: true true
}

// MinHold keeps the key taken though the work was quick, so that a machine whose
// clock is a little slow finds the job taken and not free again.
func ExampleMinHold() {
	client, _ := fencelock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	client.Do(ctx, "job", func(context.Context, *fencelock.Lease) error { return nil }, fencelock.MinHold(time.Minute))
	_, err := client.TryLock(ctx, "job")
	fmt.Println(errors.Is(err, fencelock.ErrNotAcquired))
	// Output: true
}

// A process takes the lock, hands it on, and ends. Another one goes on with it.
func ExampleClient_Detach() {
	store := memlock.New() // shared, as a server would be
	first, _ := fencelock.New(store, nil)
	second, _ := fencelock.New(store, nil)
	defer first.Close()
	defer second.Close()
	ctx := context.Background()

	lease, err := first.Lock(ctx, "deploy", fencelock.TTL(10*time.Minute))
	if err != nil {
		return
	}
	handle, err := first.Detach(ctx, lease) // text for a file, a job's parameter, a request
	fmt.Println(handle.Key(), err)

	adopted, err := second.Detached(handle).Adopt(ctx)
	if err != nil {
		return
	}
	fmt.Println(adopted.Token() == lease.Token(), adopted.Release(ctx))
	// Output:
	// deploy <nil>
	// true <nil>
}
