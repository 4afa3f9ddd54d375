package history_test

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/history"
	"github.com/fencelock/fencelock/memlock"
)

func Example() {
	store := memlock.New()
	recorder, err := history.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := fencelock.New(store, &fencelock.Options{Owner: "web-3", OnEvent: recorder.OnEvent})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	client.Do(ctx, "report", func(context.Context, *fencelock.Lease) error { return nil })
	client.Close() // writes what is left

	entries, err := history.Read(ctx, store, "report", 10)
	for _, e := range entries {
		fmt.Println(e.Owner, e.End)
	}
	fmt.Println(err)
	// Output:
	// web-3 released
	// <nil>
}
