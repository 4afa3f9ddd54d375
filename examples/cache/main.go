// Cache rebuilds an expired entry once, over all machines: one process asks the
// database, the others wait for its result instead of asking too.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/examples/internal/story"
	"github.com/fencelock/fencelock/redislock"
)

func main() {
	if err := play(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func play(args []string) error {
	addr, stop, err := story.Redis(args...)
	if err != nil {
		return err
	}
	defer stop()
	var asked atomic.Int64
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	c, err := newCache(rdb, func(ctx context.Context, key string) (string, error) {
		asked.Add(1)
		time.Sleep(200 * time.Millisecond) // a query that the database feels
		return "42", nil
	})
	if err != nil {
		return err
	}
	defer c.locks.Close()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if _, err := c.get(context.Background(), "answer"); err != nil {
				log.Print(err)
			}
		})
	}
	all.Wait()
	fmt.Printf("100 readers of an expired entry; questions to the database from this process: %d\n", asked.Load())
	return nil
}

// cache keeps entries in Redis for a minute.
type cache struct {
	rdb   *redis.Client
	locks *fencelock.Client
	load  func(ctx context.Context, key string) (string, error)
}

func newCache(rdb *redis.Client, load func(ctx context.Context, key string) (string, error)) (*cache, error) {
	locks, err := fencelock.New(redislock.New(rdb, nil), nil)
	return &cache{rdb, locks, load}, err
}

// get returns an entry, and makes it if it is not there. If the process that makes it
// dies, the next in line does.
func (c *cache) get(ctx context.Context, key string) (value string, err error) {
	value, err = c.rdb.Get(ctx, key).Result()
	if !errors.Is(err, redis.Nil) {
		return value, err
	}
	err = c.locks.Do(ctx, "cache/"+key, func(ctx context.Context, _ *fencelock.Lease) error {
		// Whoever was before us in line has made it.
		value, err = c.rdb.Get(ctx, key).Result()
		if !errors.Is(err, redis.Nil) {
			return err
		}
		if value, err = c.load(ctx, key); err != nil {
			return err
		}
		return c.rdb.Set(ctx, key, value, time.Minute).Err()
	})
	return value, err
}
