// Transfer moves money between accounts that are kept in Redis. Two transfers between
// the same accounts in opposite directions would wait for each other forever if each
// locked its own side first; LockAll takes both or none, in one order.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"sync"

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
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	return run(context.Background(), rdb)
}

func run(ctx context.Context, rdb *redis.Client) error {
	bank, err := newBank(rdb)
	if err != nil {
		return err
	}
	defer bank.locks.Close()
	if err := bank.open(ctx, "alice", "bob"); err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, way := range [][2]string{{"alice", "bob"}, {"bob", "alice"}} {
		for range 4 {
			all.Go(func() {
				for range 25 {
					err := bank.transfer(ctx, way[0], way[1], rand.Int64N(50))
					if err != nil && !errors.Is(err, errFunds) {
						log.Print(err)
					}
				}
			})
		}
	}
	all.Wait()
	sum, err := bank.sum(ctx, "alice", "bob")
	fmt.Printf("200 transfers both ways; the accounts have %d together, as at the beginning\n", sum)
	return err
}

// bank keeps accounts in Redis, and locks in the same one.
type bank struct {
	rdb   *redis.Client
	locks *fencelock.Client
}

func newBank(rdb *redis.Client) (*bank, error) {
	locks, err := fencelock.New(redislock.New(rdb, nil), nil)
	return &bank{rdb, locks}, err
}

var errFunds = errors.New("not enough on the account")

// transfer reads both accounts and writes both. Nobody else does so meanwhile.
func (b *bank) transfer(ctx context.Context, from, to string, amount int64) (err error) {
	both, err := b.locks.LockAll(ctx, []string{"account/" + from, "account/" + to})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, both.Release(ctx)) }()
	ctx = both.Context()
	has, err := b.rdb.Get(ctx, from).Int64()
	if err != nil {
		return err
	}
	other, err := b.rdb.Get(ctx, to).Int64()
	if err != nil {
		return err
	}
	if has < amount {
		return fmt.Errorf("%s: %w", from, errFunds)
	}
	return b.rdb.MSet(ctx, from, has-amount, to, other+amount).Err()
}

func (b *bank) open(ctx context.Context, names ...string) error {
	for _, n := range names {
		if err := b.rdb.Set(ctx, n, 1000, 0).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bank) sum(ctx context.Context, names ...string) (sum int64, err error) {
	for _, n := range names {
		has, err := b.rdb.Get(ctx, n).Int64()
		if err != nil {
			return 0, err
		}
		sum += has
	}
	return sum, nil
}
