// Nightly runs a job on one machine at a time, through a Redis that all of them
// share. Start it on as many machines as you like.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	addr := "127.0.0.1:6379"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	if err := nightly(ctx, rdb, report); err != nil {
		log.Fatal(err)
	}
}

// nightly runs job while it holds the lock, and waits its turn before.
func nightly(ctx context.Context, rdb redis.UniversalClient, job func(ctx context.Context, l *fencelock.Lease) error) error {
	client := fencelock.New(redislock.New(rdb, nil), &fencelock.Options{
		Hooks: fencelock.LogHooks(slog.Default()), // losses and warnings, and more at debug level
	})
	defer client.Close()
	return client.Do(ctx, "nightly", job)
}

// report is the job. Its ctx ends with the lock, so work that looks at it stops when
// the lock is lost; and it writes the token beside what it writes.
func report(ctx context.Context, l *fencelock.Lease) error {
	fmt.Println("working under token", l.Token())
	select {
	case <-time.After(5 * time.Second):
		fmt.Println("done")
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
