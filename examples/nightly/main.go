// Nightly runs a job on one machine at a time, through a Redis that all of them
// share. Start it on as many machines as you like.
//
//	go run ./nightly              two machines and a Redis, all here
//	go run ./nightly HOST:PORT    one machine
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/examples/internal/story"
	"github.com/fencelock/fencelock/redislock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := machine
	if len(os.Args) == 1 {
		run = func(ctx context.Context) error { return twoMachines(ctx, os.Stdout) }
	}
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// machine is one machine, with the Redis that the command line names.
func machine(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	defer rdb.Close()
	return nightly(ctx, rdb, report)
}

// twoMachines starts a Redis, and two machines that have the job at the same time.
func twoMachines(ctx context.Context, out io.Writer) error {
	addr, stop, err := story.Redis()
	if err != nil {
		return err
	}
	defer stop()
	a, err := story.Start(ctx, out, "machine a", addr)
	if err != nil {
		return err
	}
	b, err := story.Start(ctx, out, "machine b", addr)
	if err != nil {
		return errors.Join(err, a.Kill(), a.Wait())
	}
	return errors.Join(a.Wait(), b.Wait())
}

// nightly runs job while it holds the lock, and waits its turn before.
func nightly(
	ctx context.Context, rdb redis.UniversalClient, job func(ctx context.Context, l *fencelock.Lease) error,
) error {
	client, err := fencelock.New(redislock.New(rdb, nil), &fencelock.Options{
		OnEvent: fencelock.LogEvents(slog.Default()), // losses and warnings, and more at debug level
	})
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Do(ctx, "nightly", job)
}

// report is the job. Its ctx ends with the lock, so work that looks at it stops when
// the lock is lost; and it writes the token beside what it writes.
func report(ctx context.Context, l *fencelock.Lease) error {
	fmt.Println("working under token", l.Token())
	select {
	case <-time.After(2 * time.Second):
		fmt.Println("done")
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
