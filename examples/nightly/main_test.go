package main

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testserver"
)

func TestNightlyRunsOneAtATime(t *testing.T) {
	server := testserver.Redis(t)
	var inside atomic.Int32
	var last fence.Token
	var machines sync.WaitGroup
	for range 4 {
		machines.Go(func() {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer rdb.Close()
			for range 10 {
				err := nightly(t.Context(), rdb, func(ctx context.Context, l *fencelock.Lease) error {
					if inside.Add(1) != 1 {
						t.Error("two at a time")
					}
					if l.Token() <= last {
						t.Errorf("token %v after %v", l.Token(), last)
					}
					last = l.Token()
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	machines.Wait()
}
