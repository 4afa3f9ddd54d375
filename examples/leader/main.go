// Leader is a service of several replicas of which one leads, while the others know who
// it is and stand by.
//
//	go run ./leader 127.0.0.1:6379 a
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/elect"
	"github.com/fencelock/fencelock/redislock"
)

// lease is how long a leader that died is missed, at the most.
const lease = 3 * time.Second

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: leader ADDRESS-OF-REDIS NAME")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	defer rdb.Close()
	locks := fencelock.New(redislock.New(rdb, nil), &fencelock.Options{Owner: os.Args[2], TTL: lease})
	defer locks.Close()
	if err := replica(ctx, locks); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// replica stands for election and says who leads, until ctx ends.
func replica(ctx context.Context, locks *fencelock.Client) error {
	e := elect.New(locks, "reports", nil)
	go func() {
		for leader, err := range e.Watch(ctx) {
			switch {
			case err != nil:
				fmt.Println("nobody knows who leads:", err)
			case leader.Owner == "":
				fmt.Println("nobody leads")
			default:
				fmt.Println("leader", leader.Owner)
			}
		}
	}()
	return e.Run(ctx, func(ctx context.Context, l *fencelock.Lease) error {
		fmt.Println("lead under token", l.Token())
		<-ctx.Done() // the work; it writes with l.Token()
		fmt.Println("lead no more:", context.Cause(ctx))
		return nil
	})
}
