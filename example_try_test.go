package fencelock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// A try takes the lock now or not at all. The refusal says who has it.
func ExampleClient_TryLock() {
	store := memlock.New() // shared, as a server would be
	web3 := fencelock.New(store, &fencelock.Options{Owner: "web-3"})
	web4 := fencelock.New(store, &fencelock.Options{Owner: "web-4"})
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
