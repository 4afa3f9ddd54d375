package redislock

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// compareAndDelete is what every tutorial releases a lock with.
var compareAndDelete = redis.NewScript(`if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`)

// rawPair is the least that a lock on Redis can cost: SET NX PX, and compare and
// delete.
func rawPair(rdb *redis.Client, key string) error {
	ctx := context.Background()
	if ok, err := rdb.SetNX(ctx, key, "0123456789abcdef0123456789abcdef", time.Minute).Result(); err != nil || !ok {
		return fmt.Errorf("SET NX: %v %v", ok, err)
	}
	return compareAndDelete.Run(ctx, rdb, []string{key}, "0123456789abcdef0123456789abcdef").Err()
}

func lockPair(b *Backend, c driver.Claim, e driver.Exit) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	t, err := b.Enter(ctx, c)
	if err != nil {
		return err
	}
	return b.Leave(ctx, t, e)
}

// BenchmarkFreePair locks and releases a free lock, in turns with the raw pair,
// so that both see the same machine.
func BenchmarkFreePair(b *testing.B) {
	s := testserver.Redis(b)
	rdb := dial(b, s)
	locks := connect(b, s, nil)
	c := mutex("bench")
	var raw, own []time.Duration
	b.ResetTimer()
	for i := range b.N {
		if i/50%2 == 0 {
			start := time.Now()
			if err := rawPair(rdb, "raw"); err != nil {
				b.Fatal(err)
			}
			raw = append(raw, time.Since(start))
			continue
		}
		start := time.Now()
		c.ID = strconv.Itoa(i) // a Leave that go-redis repeats keeps its ID out
		if err := lockPair(locks, c, driver.Exit{}); err != nil {
			b.Fatal(err)
		}
		own = append(own, time.Since(start))
	}
	if len(raw) == 0 || len(own) == 0 {
		return
	}
	slices.Sort(raw)
	slices.Sort(own)
	p50 := func(d []time.Duration) float64 { return float64(d[len(d)/2].Nanoseconds()) / 1000 }
	b.ReportMetric(p50(raw), "raw-p50-µs")
	b.ReportMetric(p50(own), "own-p50-µs")
	b.ReportMetric(p50(own)/p50(raw), "own/raw")
}

// BenchmarkTombstonePair locks and releases a free lock, each time with a tombstone, as a
// service does for its clients. It shows what a pair costs the server.
func BenchmarkTombstonePair(b *testing.B) {
	s := testserver.Redis(b)
	rdb := dial(b, s)
	locks := connect(b, s, nil)
	for _, c := range []driver.Claim{mutex("mutex"), slots("semaphore", 1, 2)} {
		b.Run(c.Key, func(b *testing.B) {
			before := serverTime(b, rdb)
			for range b.N {
				c.ID = rand.Text()
				if err := lockPair(locks, c, driver.Exit{Tombstone: true}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((serverTime(b, rdb)-before)/float64(b.N), "server-µs/pair")
		})
	}
}
