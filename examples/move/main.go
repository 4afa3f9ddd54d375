// Move takes a fleet from redsync to fencelock and from Redis to PostgreSQL, under load, and halfway back. In no
// phase do two programs have the lock at once.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock/setnx"
)

func main() {
	if err := run(context.Background(), 2*time.Second); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stage time.Duration) error {
	var dirs [2]string
	for i := range dirs {
		var err error
		if dirs[i], err = os.MkdirTemp("", "move"); err != nil {
			return err
		}
		defer os.RemoveAll(dirs[i])
	}
	old, err := testserver.StartRedis(ctx, dirs[0])
	if err != nil {
		return err
	}
	defer old.Stop()
	postgres, err := testserver.StartPostgres(ctx, dirs[1])
	if err != nil {
		return err
	}
	defer postgres.Stop()
	s, err := connect(old.Addr(), postgres.URL())
	if err != nil {
		return err
	}
	defer s.close()
	f := &fleet{}
	for _, p := range []struct {
		name string
		runs []program
	}{
		{"redsync", []program{s.redsync}},
		{"redsync and the bridge", []program{s.redsync, s.both}},
		{"the bridge", []program{s.both}},
		{"the bridge and PostgreSQL", []program{s.both, s.postgres}},
		{"PostgreSQL", []program{s.postgres}},
		{"back: the bridge and PostgreSQL", []program{s.both, s.postgres}},
	} {
		if err := f.work(ctx, stage, p.runs); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Printf("%-32s %5d orders, %d at once, %d tokens fell\n",
			p.name, f.orders.Swap(0), f.together.Load(), f.fell.Load())
	}
	if f.together.Load()+f.fell.Load() > 0 {
		return fmt.Errorf("%d had the lock at once, and %d tokens fell", f.together.Load(), f.fell.Load())
	}
	return nil
}

// program takes the lock of key, calls do with its token, and releases it. redsync has no token.
type program func(ctx context.Context, key string, do func(token int64)) error

// stores are the two stores, and the programs of each deployment.
type stores struct {
	redsync, both, postgres program
	close                   func()
}

func connect(addr, url string) (*stores, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	rs := redsync.New(goredis.NewPool(rdb))
	s := &stores{redsync: func(ctx context.Context, key string, do func(int64)) error {
		m := rs.NewMutex(key, redsync.WithTries(1000), redsync.WithRetryDelay(5*time.Millisecond))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		do(0)
		_, err := m.UnlockContext(ctx)
		return err
	}}
	db, toPostgres, err := onPostgres(url)
	if err != nil {
		return nil, err
	}
	// The deployment in between holds redsync's own lock, and then that of PostgreSQL.
	both, endBoth, err := client(bridge.New(bridge.Foreign(setnx.New(rdb, "")), toPostgres()))
	if err != nil {
		return nil, err
	}
	after, endAfter, err := client(toPostgres())
	s.both, s.postgres = both, after
	s.close = func() { endBoth(); endAfter(); db.Close(); rdb.Close() }
	return s, err
}

func client(b driver.Backend) (program, func(), error) {
	locks, err := fencelock.New(b, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, key string, do func(int64)) error {
		return locks.Do(ctx, key, func(_ context.Context, l *fencelock.Lease) error {
			do(int64(l.Token()))
			return nil
		})
	}, func() { locks.Close() }, nil
}

// fleet counts what its programs do, and what must not happen.
type fleet struct {
	inside, orders, together, fell, last atomic.Int64
}

// work has two of each program take the lock again and again.
func (f *fleet) work(ctx context.Context, d time.Duration, runs []program) error {
	ends := time.Now().Add(d)
	failed := make(chan error, 2*len(runs))
	var all sync.WaitGroup
	for _, p := range append(runs, runs...) {
		all.Go(func() {
			for time.Now().Before(ends) {
				if err := p(ctx, "orders/42", f.order); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// order holds the data that the lock protects.
func (f *fleet) order(token int64) {
	if f.inside.Add(1) > 1 {
		f.together.Add(1)
	}
	if token > 0 && f.last.Swap(token) >= token {
		f.fell.Add(1)
	}
	time.Sleep(time.Millisecond)
	f.orders.Add(1)
	f.inside.Add(-1)
}
