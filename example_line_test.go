package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// Who holds, who waits.
func ExampleClient_Lines() {
	store := memlock.New()
	ctx := context.Background()
	for _, owner := range []string{"web-3", "web-4"} {
		client, _ := fencelock.New(store, &fencelock.Options{Owner: owner})
		defer client.Close()
		client.RLock(ctx, "config/prices")
	}

	client, _ := fencelock.New(store, nil)
	defer client.Close()
	for line, err := range client.Lines(ctx, "config/") {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, claim := range line.Claims {
			fmt.Println(line.Key, claim.Owner, claim.Kind, claim.Granted)
		}
	}
	// Output:
	// config/prices web-3 shared true
	// config/prices web-4 shared true
}

// A cron job that starts on every replica runs on one of them, and once. If it
// fails, the slot stays open for the next try.
func ExampleClient_Once() {
	store := memlock.New()
	ctx := context.Background()
	slot := time.Date(2026, 11, 20, 20, 0, 0, 0, time.UTC) // time.Now().UTC().Truncate(time.Hour)

	for i, outcome := range []error{errors.New("disk full"), nil, nil} {
		replica, _ := fencelock.New(store, nil)
		ran, err := replica.Once(ctx, "hourly-report", slot, func(context.Context, *fencelock.Lease) error {
			return outcome
		})
		fmt.Printf("replica %d: ran %v, %v\n", i, ran, err)
		replica.Close()
	}
	// Output:
	// replica 0: ran true, disk full
	// replica 1: ran true, <nil>
	// replica 2: ran false, <nil>
}

// What a slot left behind can be read from the line of its key.
func ExampleLine() {
	client, _ := fencelock.New(memlock.New(), &fencelock.Options{Owner: "web-3"})
	defer client.Close()
	ctx := context.Background()
	slot := time.Date(2026, 11, 20, 20, 0, 0, 0, time.UTC)

	client.Once(ctx, "hourly-report", slot, func(context.Context, *fencelock.Lease) error { return nil })
	line, err := client.Line(ctx, "hourly-report")
	if err != nil {
		fmt.Println(err)
		return
	}
	if !line.Done.IsZero() {
		fmt.Println(line.Slot.Format(time.DateTime), "was done by", line.DoneBy)
	}
	// Output: 2026-11-20 20:00:00 was done by web-3
}
