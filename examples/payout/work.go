package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock"
)

// work is what one machine does: the whole job under its lock, or what is left of it.
func work(ctx context.Context, keys bool, addr, bankURL string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	locks, err := fencelock.New(redislock.New(rdb, nil), nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	err = locks.Do(ctx, job, func(ctx context.Context, _ *fencelock.Lease) error {
		for _, seller := range sellers {
			if err := paySeller(ctx, rdb, keys, bankURL, seller); err != nil {
				return err
			}
		}
		return nil
	}, fencelock.TTL(lease))
	if errors.Is(err, fencelock.ErrLost) {
		// Nothing is undone: somebody else is at it by now, and an undoing would be as late as a
		// payment. The journal says which payment is under way; the next holder repeats that one.
		fmt.Println("lost the lock half-way, and stops:", err)
		return nil
	}
	return err
}

// paySeller notes a payment before it is made and after it was. What is noted as begun, and not
// as done, may have been paid.
func paySeller(ctx context.Context, rdb *redis.Client, keys bool, bankURL, seller string) error {
	state, err := rdb.HGet(ctx, job, seller).Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return err
	case state == "done":
		return nil
	case state == "begun":
		fmt.Println("repeats the payment to", seller)
	}
	if err := rdb.HSet(ctx, job, seller, "begun").Err(); err != nil {
		return err
	}
	body := url.Values{"seller": {seller}, "amount": {fmt.Sprint(amount)}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, bankURL, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if keys {
		// The same for every attempt, whoever makes it: of the job and the seller, not of the
		// lock. A token would be another one for the next holder.
		req.Header.Set("Idempotency-Key", job+"/"+seller)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the bank answers %s", answer.Status)
	}
	return rdb.HSet(ctx, job, seller, "done").Err()
}
