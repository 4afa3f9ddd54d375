package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/internal/testserver"
)

// machines calls f with three caches, as three processes have them, twenty times each
// and all at once.
func machines(t *testing.T, load func(context.Context, string) (string, error), f func(c *cache)) {
	server := testserver.Redis(t)
	var all sync.WaitGroup
	for range 3 {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer rdb.Close()
		c, err := newCache(rdb, load)
		if err != nil {
			t.Fatal(err)
		}
		defer c.locks.Close()
		for range 20 {
			all.Go(func() { f(c) })
		}
	}
	all.Wait()
}

func TestOneMachineAsksTheDatabase(t *testing.T) {
	var asked atomic.Int64
	machines(t, func(context.Context, string) (string, error) {
		asked.Add(1)
		time.Sleep(50 * time.Millisecond) // real time: how long the database takes
		return "42", nil
	}, func(c *cache) {
		if v, err := c.get(t.Context(), "answer"); v != "42" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	})
	if asked.Load() != 1 {
		t.Errorf("the database was asked %d times", asked.Load())
	}
}

// An error is for the one who saw it; the next in line asks again.
func TestFailureIsNotKept(t *testing.T) {
	var asked, failed atomic.Int64
	machines(t, func(context.Context, string) (string, error) {
		if asked.Add(1) <= 2 {
			return "", errors.New("database is away")
		}
		return "42", nil
	}, func(c *cache) {
		if _, err := c.get(t.Context(), "answer"); err != nil {
			failed.Add(1)
		}
	})
	if asked.Load() != 3 || failed.Load() != 2 {
		t.Errorf("the database was asked %d times, and %d readers failed; want 3 and 2", asked.Load(), failed.Load())
	}
}
