package reports

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
)

// The workers of a program wait in BLPOP, and have all connections of its go-redis client. Its leases
// are renewed, and released, over a connection of their own.
func TestBlockingCommandsKeepNoLeaseFromItsRenewal(t *testing.T) {
	s := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 2, PoolTimeout: 50 * time.Millisecond})
	defer rdb.Close()
	c, err := fencelock.New(redislock.New(rdb, nil), nil)
	must(t, err)
	l, err := c.Lock(t.Context(), "job")
	must(t, err)
	must(t, l.Renew(t.Context()))
	connected := func() int {
		list, err := s.Ask("CLIENT", "LIST")
		must(t, err)
		return strings.Count(list, "id=")
	}
	before := connected()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		go rdb.BLPop(ctx, 0, "queue")
	}
	testserver.Eventually(t, 30*time.Second, "BLPOP has all connections", func() bool {
		stats := rdb.PoolStats()
		return stats.TotalConns == 2 && stats.IdleConns == 0
	})
	if err := l.Renew(t.Context()); err != nil {
		t.Fatalf("a renewal beside two BLPOPs in a pool of two: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("a release beside two BLPOPs in a pool of two: %v", err)
	}
	if now := connected(); now > before+3 {
		t.Errorf("there are %d connections, and were %d; want two for BLPOP and at most one more", now, before)
	}
	must(t, c.Close())
	must(t, steps.ErrOf(s.Ask("LPUSH", "queue", "1", "2")))
	testserver.Eventually(t, 30*time.Second, "only connections of the program are left", func() bool {
		return connected() <= 3 // one asks
	})
}
