package elect_test

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/elect"
	"github.com/fencelock/fencelock/memlock"
)

// A process leads until it steps down, and whoever asks learns its address.
func Example() {
	locks, _ := fencelock.New(memlock.New(), &fencelock.Options{Owner: "web-1"})
	defer locks.Close()
	e := elect.New(locks, "reports", &elect.Options{Note: "10.0.0.1:8080"})

	err := e.Run(context.Background(), func(ctx context.Context, l *fencelock.Lease) error {
		leader, err := e.Leader(ctx)
		if err != nil {
			return err
		}
		fmt.Println(leader.Owner, "leads at", leader.Note)
		return nil // steps down; a real leader works until ctx ends
	})
	fmt.Println(err, e.Term() == nil)
	// Output:
	// web-1 leads at 10.0.0.1:8080
	// <nil> true
}
