package bridge

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/redislock/setnx"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const lease = 10 * time.Second

// program takes a lock, and returns how to release it.
type program func(ctx context.Context, key string) (release func() error, err error)

// programs are a program of each library, and bridges from their lock to a new store.
func programs(t *testing.T) (rdb *redis.Client, all map[string]program) {
	t.Helper()
	rdb = redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr()})
	t.Cleanup(func() { rdb.Close() })
	rs, locker, store := redsync.New(goredis.NewPool(rdb)), bsm.New(rdb), memlock.New()
	return rdb, map[string]program{
		"redsync": func(ctx context.Context, key string) (func() error, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(10_000), redsync.WithRetryDelay(5*time.Millisecond))
			return func() error { _, err := m.UnlockContext(ctx); return err }, m.LockContext(ctx)
		},
		"bsm/redislock": func(ctx context.Context, key string) (func() error, error) {
			l, err := locker.Obtain(ctx, key, lease, &bsm.Options{RetryStrategy: bsm.LinearBackoff(5 * time.Millisecond)})
			return func() error { return l.Release(ctx) }, err
		},
		"a bridge": bridged(t, rdb, store),
		"another":  bridged(t, rdb, store),
		"new only": locks(t, store),
	}
}

func bridged(t *testing.T, rdb *redis.Client, store *memlock.Store) program {
	t.Helper()
	c, err := fencelock.New(bridge.New(bridge.Foreign(setnx.New(rdb, "")), store), &fencelock.Options{TTL: lease})
	return lockBy(t, c, err)
}

func locks(t *testing.T, store *memlock.Store) program {
	t.Helper()
	c, err := fencelock.New(store, &fencelock.Options{TTL: lease})
	return lockBy(t, c, err)
}

func lockBy(t *testing.T, c *fencelock.Client, err error) program {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func(ctx context.Context, key string) (func() error, error) {
		l, err := c.Lock(ctx, key)
		if err != nil {
			return nil, err
		}
		return func() error { return l.Release(ctx) }, nil
	}
}

// exclude has the named programs take one lock many times, and no two may be inside at once.
func exclude(t *testing.T, all map[string]program, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var inside atomic.Int32
	var work sync.WaitGroup
	for _, name := range names {
		work.Go(func() {
			for range 20 {
				release, err := all[name](ctx, "order/42")
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%s is inside with %d others", name, n-1)
				}
				time.Sleep(time.Millisecond) // real time: the others must have a chance to come in
				inside.Add(-1)
				if err := release(); err != nil {
					t.Errorf("%s: release: %v", name, err)
				}
			}
		})
	}
	work.Wait()
}

func TestBridgeExcludesForeignPrograms(t *testing.T) {
	t.Parallel()
	rdb, all := programs(t)
	exclude(t, all, "redsync", "bsm/redislock", "a bridge", "another")
	exclude(t, all, "a bridge", "another", "new only")
	exclude(t, all, "redsync", "bsm/redislock", "a bridge")
	if n := rdb.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left in Redis", n)
	}
}

// A foreign program that crashed has left its key, which ends by itself; until then the bridge waits.
func TestBridgeWaitsForTheLeaseOfAForeignHolder(t *testing.T) {
	t.Parallel()
	rdb, all := programs(t)
	for i, holder := range []string{"redsync", "bsm/redislock"} {
		key := fmt.Sprint("order/", i)
		if _, err := all[holder](t.Context(), key); err != nil {
			t.Fatal(err)
		}
		begun := make(chan error)
		go func() {
			release, err := all["a bridge"](t.Context(), key)
			if err == nil {
				err = release()
			}
			begun <- err
		}()
		select {
		case err := <-begun:
			t.Errorf("%s holds the lock, and the bridge got it: %v", holder, err)
		case <-time.After(500 * time.Millisecond): // real time: nothing may happen
		}
		if err := rdb.PExpire(t.Context(), key, time.Millisecond).Err(); err != nil {
			t.Fatal(err)
		}
		if err := <-begun; err != nil {
			t.Error(err)
		}
	}
}
