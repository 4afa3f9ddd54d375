// Leader is a service of several replicas of which one leads, while the others know who
// it is and stand by.
//
//	go run ./leader                 three replicas and a Redis, all here; two of them go
//	go run ./leader HOST:PORT NAME  one replica
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
	"github.com/fencelock/fencelock/examples/internal/story"
	"github.com/fencelock/fencelock/redislock"
)

// lease is how long a leader that died is missed, at the most.
const lease = 3 * time.Second

func main() {
	log.SetFlags(0)
	if len(os.Args) != 1 && len(os.Args) != 3 {
		log.Fatal("usage: leader [ADDRESS-OF-REDIS NAME]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 1 {
		if err := threeReplicas(ctx); err != nil {
			log.Fatal(err)
		}
		return
	}
	rdb := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	defer rdb.Close()
	locks, err := fencelock.New(redislock.New(rdb, nil), &fencelock.Options{Owner: os.Args[2], TTL: lease})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	if err := replica(ctx, locks); err != nil {
		log.Fatal(err)
	}
}

// threeReplicas starts a Redis and three replicas, asks the leader to go, and kills the
// next one.
func threeReplicas(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // which kills those that are left
	addr, stop, err := story.Redis()
	if err != nil {
		return err
	}
	defer stop()
	var replicas []*story.Machine
	for _, name := range []string{"a", "b", "c"} {
		r, err := story.Start(ctx, os.Stdout, name, addr, name)
		if err != nil {
			return err
		}
		if err := r.Says("leader a"); err != nil { // so that they stand in line in this order
			return err
		}
		replicas = append(replicas, r)
	}
	fmt.Println("-- a is asked to end: b follows at once")
	if err := errors.Join(replicas[0].Signal(syscall.SIGTERM), replicas[1].Says("lead under token")); err != nil {
		return err
	}
	fmt.Println("-- b is killed: c follows when the lease of b has run out")
	if err := errors.Join(replicas[1].Kill(), replicas[2].Says("lead under token")); err != nil {
		return err
	}
	return replicas[2].Signal(syscall.SIGTERM)
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
