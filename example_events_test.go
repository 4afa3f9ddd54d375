package fencelock_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// LogEvents writes what happens to a logger: losses as errors, risks as warnings, the
// rest at debug level.
func ExampleLogEvents() {
	quiet := func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey, "token", "took":
			return slog.Attr{} // differ from run to run
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: quiet}))
	client, _ := fencelock.New(memlock.New(), &fencelock.Options{OnEvent: fencelock.LogEvents(logger)})

	client.Do(context.Background(), "report", func(context.Context, *fencelock.Lease) error { return nil })
	client.Close() // waits until all is written
	// Output:
	// level=DEBUG msg="lock acquired" key=report
	// level=DEBUG msg="lock released" key=report
	// level=DEBUG msg="lock client closed"
}

// Who waits for what.
func ExampleEvent() {
	store := memlock.New()
	holder, _ := fencelock.New(store, &fencelock.Options{Owner: "web-3"})
	defer holder.Close()
	waiting := make(chan struct{})
	client, _ := fencelock.New(store, &fencelock.Options{OnEvent: func(e fencelock.Event) {
		switch e.Type {
		case fencelock.EventWaiting:
			fmt.Println("waiting for", e.HeldBy.Owner)
			close(waiting)
		case fencelock.EventAcquired:
			fmt.Println("acquired", e.Key, e.Took > 0)
		}
	}})
	ctx := context.Background()

	lease, _ := holder.Lock(ctx, "report")
	go func() {
		<-waiting
		lease.Release(ctx)
	}()
	client.Do(ctx, "report", func(context.Context, *fencelock.Lease) error { return nil })
	client.Close()
	// Output:
	// waiting for web-3
	// acquired report true
}
