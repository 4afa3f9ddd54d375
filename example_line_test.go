package fencelock_test

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// Who holds, who waits.
func ExampleClient_Lines() {
	store := memlock.New()
	ctx := context.Background()
	for _, owner := range []string{"web-3", "web-4"} {
		client := fencelock.New(store, &fencelock.Options{Owner: owner})
		defer client.Close()
		client.RLock(ctx, "config/prices")
	}

	client := fencelock.New(store, nil)
	defer client.Close()
	for line, err := range client.Lines(ctx, "config/") {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, c := range line.Claims {
			fmt.Println(line.Key, c.Owner, "granted:", c.Granted)
		}
	}
	// Output:
	// config/prices web-3 granted: true
	// config/prices web-4 granted: true
}
