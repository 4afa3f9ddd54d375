package redislock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
)

// Whoever holds the lock of an item writes its stock. A holder that was paused, and
// has lost the lock, is refused.
func ExampleFence() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	locks, _ := fencelock.New(redislock.New(rdb, nil), nil)
	stock := redislock.NewFence(rdb, nil)

	refill := func(ctx context.Context) (err error) {
		lease, err := locks.Lock(ctx, "stock/sku1")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lease.Release(ctx)) }()
		ctx = lease.Context()
		err = stock.Set(ctx, "stock:sku1", 100, 0, lease.Token())
		if errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("somebody else has refilled it: %w", err)
		}
		return err
	}
	_ = refill
}

// A deduction that never goes below zero, and is refused for those whose lock has
// passed on.
func ExampleFence_Script() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	take := redislock.NewFence(rdb, nil).Script(`
		local left = tonumber(redis.call('GET', KEYS[1]) or '0')
		if left < tonumber(ARGV[1]) then return -1 end
		return redis.call('DECRBY', KEYS[1], ARGV[1])`)

	sell := func(ctx context.Context, lease *fencelock.Lease, n int) (left int, err error) {
		return take.Run(ctx, lease.Token(), []string{"stock:sku1"}, n).Int()
	}
	_ = sell
}
