package redislock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

func lockPair(b *Backend, c driver.Claim) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	t, err := b.Enter(ctx, c)
	if err != nil {
		return err
	}
	return b.Leave(ctx, t, driver.Exit{})
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
		if err := lockPair(locks, c); err != nil {
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

// BenchmarkManyKeys has 64 goroutines on a key each.
func BenchmarkManyKeys(b *testing.B) {
	s := testserver.Redis(b)
	rdb := dial(b, s)
	run := func(b *testing.B, pair func(i int) error) {
		var left atomic.Int64
		left.Store(int64(b.N))
		var group sync.WaitGroup
		for i := range 64 {
			group.Go(func() {
				for left.Add(-1) >= 0 {
					if err := pair(i); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
	}
	claims := make([]driver.Claim, 64)
	for i := range claims {
		claims[i] = mutex(fmt.Sprintf("bench-%d", i))
	}
	for range 3 {
		b.Run("raw", func(b *testing.B) {
			run(b, func(i int) error { return rawPair(rdb, claims[i].Key) })
		})
		b.Run("own", func(b *testing.B) {
			locks := connect(b, s, nil)
			run(b, func(i int) error { return lockPair(locks, claims[i]) })
		})
		b.Run("own alone", func(b *testing.B) {
			locks := connect(b, s, &Options{NoPipeline: true})
			run(b, func(i int) error { return lockPair(locks, claims[i]) })
		})
	}
}

// BenchmarkServerTime reports how long the server works on each script.
func BenchmarkServerTime(b *testing.B) {
	s := testserver.Redis(b)
	rdb := dial(b, s)
	locks := connect(b, s, nil)
	c := mutex("bench")
	for range b.N {
		if err := lockPair(locks, c); err != nil {
			b.Fatal(err)
		}
	}
	b.Log(rdb.Info(context.Background(), "commandstats").Val())
	rdb.ConfigResetStat(context.Background())
	for range b.N {
		if err := rawPair(rdb, "raw"); err != nil {
			b.Fatal(err)
		}
	}
	b.Log(rdb.Info(context.Background(), "commandstats").Val())
}
