package bridge

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/setnx"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const lease = 10 * time.Second

// program takes a lock, and returns how to release it, and its token if it has one.
type program func(ctx context.Context, key string) (release func() error, token fence.Token, err error)

// programs are a program of each library, and bridges from their lock to a new store.
func programs(t *testing.T) (rdb *redis.Client, all map[string]program) {
	t.Helper()
	rdb = redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr()})
	t.Cleanup(func() { rdb.Close() })
	rs, locker, store := redsync.New(goredis.NewPool(rdb)), bsm.New(rdb), memlock.New()
	return rdb, map[string]program{
		"redsync": func(ctx context.Context, key string) (func() error, fence.Token, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(10_000), redsync.WithRetryDelay(5*time.Millisecond))
			return func() error { _, err := m.UnlockContext(ctx); return err }, 0, m.LockContext(ctx)
		},
		"bsm/redislock": func(ctx context.Context, key string) (func() error, fence.Token, error) {
			l, err := locker.Obtain(ctx, key, lease, &bsm.Options{RetryStrategy: bsm.LinearBackoff(5 * time.Millisecond)})
			return func() error { return l.Release(ctx) }, 0, err
		},
		"a bridge": bridged(t, rdb, store),
		"another":  bridged(t, rdb, store),
		"new only": locks(t, store),
	}
}

// redisStore opens views of a Redis of its own.
func redisStore(t *testing.T) drivertest.Opener {
	t.Helper()
	addr := testserver.Redis(t).Addr()
	return func(t *testing.T) driver.Backend {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		b := redislock.New(rdb, nil)
		t.Cleanup(func() { b.Close(); rdb.Close() })
		return b
	}
}

// postgresStore opens views of a PostgreSQL of its own.
func postgresStore(t *testing.T) drivertest.Opener {
	t.Helper()
	url := testserver.Postgres(t).URL()
	return func(t *testing.T) driver.Backend {
		db, err := sql.Open("pgx", url)
		steps.Must(t, err)
		b := sqllock.New(db, sqllock.Postgres, &sqllock.Options{CreateTables: true})
		t.Cleanup(func() { b.Close(); db.Close() })
		return b
	}
}

// etcdStore opens views of an etcd of its own.
func etcdStore(t *testing.T) drivertest.Opener {
	t.Helper()
	addr := testserver.Etcd(t).Addr()
	return func(t *testing.T) driver.Backend {
		etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 10 * time.Second})
		steps.Must(t, err)
		b := etcdlock.New(etcd, nil)
		t.Cleanup(func() { b.Close(); etcd.Close() })
		return b
	}
}

func bridged(t *testing.T, rdb *redis.Client, store *memlock.Store) program {
	t.Helper()
	return locks(t, bridge.New(bridge.Foreign(setnx.New(rdb, "")), store))
}

func locks(t *testing.T, b driver.Backend) program {
	t.Helper()
	c := client(t, b, lease)
	return func(ctx context.Context, key string) (func() error, fence.Token, error) {
		l, err := c.Lock(ctx, key)
		if err != nil {
			return nil, 0, err
		}
		return func() error { return l.Release(ctx) }, l.Token(), nil
	}
}

func client(t *testing.T, b driver.Backend, ttl time.Duration) *fencelock.Client {
	t.Helper()
	c, err := fencelock.New(b, &fencelock.Options{TTL: ttl})
	steps.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// exclude has the named programs take one lock many times. No two may be inside at once, and the
// tokens rise, also above last, that of the programs before.
func exclude(t *testing.T, all map[string]program, last *atomic.Int64, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var inside atomic.Int32
	var work sync.WaitGroup
	for _, name := range names {
		work.Go(func() {
			for range 20 {
				release, token, err := all[name](ctx, "order/42")
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%s is inside with %d others", name, n-1)
				}
				if before := last.Load(); token != 0 && int64(token) <= before {
					t.Errorf("%s has the token %d after %d", name, token, before)
				}
				last.Store(max(last.Load(), int64(token)))
				time.Sleep(time.Millisecond) // real time: the others must have a chance to come in
				inside.Add(-1)
				steps.Well(t, name+": release", release())
			}
		})
	}
	work.Wait()
}

func TestBridgeExcludesForeignPrograms(t *testing.T) {
	t.Parallel()
	rdb, all := programs(t)
	var last atomic.Int64
	exclude(t, all, &last, "redsync", "bsm/redislock", "a bridge", "another")
	exclude(t, all, &last, "a bridge", "another", "new only")
	exclude(t, all, &last, "redsync", "bsm/redislock", "a bridge")
	steps.Same(t, "keys are left in Redis", rdb.DBSize(t.Context()).Val(), 0)
}

// A foreign program that crashed has left its key, which ends by itself; until then the bridge waits.
func TestBridgeWaitsForTheLeaseOfAForeignHolder(t *testing.T) {
	t.Parallel()
	rdb, all := programs(t)
	for i, holder := range []string{"redsync", "bsm/redislock"} {
		key := fmt.Sprint("order/", i)
		if _, _, err := all[holder](t.Context(), key); err != nil {
			t.Fatal(err)
		}
		begun := make(chan error)
		go func() {
			release, _, err := all["a bridge"](t.Context(), key)
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
		steps.Must(t, rdb.PExpire(t.Context(), key, time.Millisecond).Err())
		steps.OK(t, <-begun)
	}
}

// Programs move from one store to another and back, under load.
func TestTokensRiseThereAndBack(t *testing.T) {
	t.Parallel()
	stores := map[string]func(*testing.T) drivertest.Opener{"Redis": redisStore, "PostgreSQL": postgresStore, "etcd": etcdStore}
	for _, move := range [][2]string{{"Redis", "Redis"}, {"Redis", "PostgreSQL"}, {"PostgreSQL", "Redis"}, {"Redis", "etcd"}, {"etcd", "Redis"}} {
		t.Run(move[0]+" to "+move[1], func(t *testing.T) {
			t.Parallel()
			old, new := stores[move[0]](t), stores[move[1]](t)
			all := map[string]program{
				"old": locks(t, old(t)), "old too": locks(t, old(t)), "new": locks(t, new(t)), "new too": locks(t, new(t)),
				"both": locks(t, bridge.New(old(t), new(t))), "both too": locks(t, bridge.New(old(t), new(t))),
			}
			var last atomic.Int64
			for _, running := range [][]string{
				{"old", "old too"}, {"old", "old too", "both", "both too"}, {"both", "both too"},
				{"both", "both too", "new", "new too"}, {"new", "new too"},
				{"both", "both too", "new", "new too"}, {"both", "both too"}, {"old", "old too", "both", "both too"},
			} {
				exclude(t, all, &last, running...)
			}
		})
	}
}
