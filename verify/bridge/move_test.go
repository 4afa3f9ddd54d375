package bridge

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/sqllock"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const lease = 30 * time.Second

// program takes a lock, and returns how to release it, and its token if it has one.
type program func(ctx context.Context, key string) (release func() error, token fence.Token, err error)

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
		b := sqllock.New(open(t, "pgx", url), sqllock.Postgres, &sqllock.Options{CreateTables: true})
		t.Cleanup(func() { b.Close() })
		return b
	}
}

// etcdStore opens views of an etcd of its own.
func etcdStore(t *testing.T) drivertest.Opener {
	t.Helper()
	addr := testserver.Etcd(t).Addr()
	return func(t *testing.T) driver.Backend {
		b := etcdlock.New(etcdClient(t, clientv3.Config{Endpoints: []string{addr}}), nil)
		t.Cleanup(func() { b.Close() })
		return b
	}
}

func locks(t *testing.T, b driver.Backend) program {
	t.Helper()
	c := client(t, b)
	return func(ctx context.Context, key string) (func() error, fence.Token, error) {
		l, err := c.Lock(ctx, key)
		if err != nil {
			return nil, 0, err
		}
		return func() error { return l.Release(ctx) }, l.Token(), nil
	}
}

func client(t *testing.T, b driver.Backend) *fencelock.Client {
	t.Helper()
	c := testclient.New(t, b, &fencelock.Options{TTL: lease})
	t.Cleanup(func() { c.Close() })
	return c
}

// exclude has the named programs take one lock many times. No two may be inside at once, and the
// tokens rise, also above last, that of the programs before.
func exclude(t *testing.T, all map[string]program, last *atomic.Int64, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
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
