// Payout pays sellers through a bank that knows nothing of locks. A machine is killed, or loses
// its lock, after the bank has paid and before it has answered. The lock lets one machine work at
// a time; only the idempotency key keeps the next one from paying again.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/examples/internal/story"
	"github.com/fencelock/fencelock/redislock"
)

const (
	job    = "payout/2026-11"
	lease  = time.Second
	amount = 100
)

var sellers = []string{"ann", "ben", "cem", "dai", "eva", "fay", "gil", "han", "ida", "jon"}

func main() {
	ctx := context.Background()
	if len(os.Args) == 5 && os.Args[1] == "machine" {
		if err := work(ctx, os.Args[2] == "keys", os.Args[3], os.Args[4]); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := play(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func play(ctx context.Context, args []string) error {
	addr, stop, err := story.Redis(args...)
	if err != nil {
		return err
	}
	defer stop()
	for _, trouble := range []string{"killed", "broken"} {
		for _, way := range []string{"lock", "keys"} {
			b, err := payout(ctx, addr, way, trouble)
			if err != nil {
				return err
			}
			fmt.Printf("%s, machine 1 is %s: %d payments for %d sellers\n\n", way, trouble, b.payments(), len(sellers))
		}
	}
	return nil
}

// payout has two machines do the job. The first one gets into trouble at the bank.
func payout(ctx context.Context, addr, way, trouble string) (*bank, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	if err := rdb.Del(ctx, job).Err(); err != nil {
		return nil, err
	}
	b := openBank()
	defer b.web.Close()
	first, err := story.Start(ctx, os.Stdout, "machine 1", "machine", way, addr, b.web.URL)
	if err != nil {
		return nil, err
	}
	select {
	case <-b.trouble: // the bank has paid the fifth seller, and has not answered
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	second, err := story.Start(ctx, os.Stdout, "machine 2", "machine", way, addr, b.web.URL)
	if err != nil {
		return nil, err
	}
	if trouble == "killed" {
		err = first.Kill()
	} else {
		err = breakLock(ctx, rdb)
	}
	if err != nil {
		return nil, err
	}
	if err := second.Wait(); err != nil {
		return nil, err
	}
	_ = first.Wait() // it was killed, or has said that it lost its lock
	return b, nil
}

// breakLock ends the grant of whoever holds the job.
func breakLock(ctx context.Context, rdb *redis.Client) error {
	locks, err := fencelock.New(redislock.New(rdb, nil), nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	line, err := locks.Line(ctx, job)
	if err != nil {
		return err
	}
	return locks.Break(ctx, job, line.Claims[0].Token, fencelock.Break{Reason: "an operator took it for stuck"})
}
