package reports

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/storeurl"
)

var quick, writable = testserver.Config("repl-diskless-sync-delay 0"), testserver.Config("replica-read-only no")

// lockingBy makes a Client with a client of Redis of the program's own.
func lockingBy(t *testing.T, addr string, change func(*redis.Options)) *fencelock.Client {
	t.Helper()
	o := &redis.Options{Addr: addr, ReadTimeout: time.Minute} // a busy machine breaks no connection
	if change != nil {
		change(o)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return client(t, redislock.New(rdb, nil))
}

// A URL names a replica that takes writes, or the client of a program, with its own user, is connected
// to one. What it grants its master knows nothing of.
func TestClientOfAProgramAtAReplicaThatTakesWrites(t *testing.T) {
	t.Parallel()
	master, replica := testserver.Redis(t, quick), testserver.Redis(t, quick, writable)
	_, err := replica.Ask("ACL", "SETUSER", "locks", "on", ">pw", "resetkeys", "~fencelock:*", "resetchannels",
		"&fencelock:*", "+eval", "+evalsha", "+time", "+hget", "+hmget", "+hset", "+hdel", "+hgetall", "+get", "+set",
		"+pttl", "+exists", "+zadd", "+zrem", "+zrank", "+zcard", "+zrange", "+pexpireat", "+persist", "+publish",
		"+subscribe", "+ping", "+scan")
	must(t, err)
	must(t, replica.Follow(master.Addr()))
	opened, err := storeurl.Open(t.Context(), replica.URL())
	must(t, err)
	t.Cleanup(opened.Close)
	if err := opened.Ping(t.Context()); !errors.As(err, new(*storeurl.ConfigError)) {
		t.Errorf("the command says %v; want a ConfigError", err)
	}
	user := func(o *redis.Options) { o.Username, o.Password = "locks", "pw" }
	clients := map[string]*fencelock.Client{
		"URL":   client(t, opened.Backend),
		"RESP3": lockingBy(t, replica.Addr(), nil),
		"RESP2": lockingBy(t, replica.Addr(), func(o *redis.Options) { o.Protocol = 2 }),
		"user":  lockingBy(t, replica.Addr(), user),
		"user without retries": lockingBy(t, replica.Addr(), func(o *redis.Options) {
			user(o)
			o.Protocol, o.MaxRetries = 2, -1
		}),
	}
	for name, c := range clients {
		if l, err := c.TryLock(t.Context(), "job"); !errors.Is(err, fencelock.ErrPermanent) {
			t.Errorf("%s: the replica granted %v, %v; want ErrPermanent", name, l, err)
		}
	}
	if n, _ := replica.Ask("DBSIZE"); n != "0" {
		t.Errorf("the replica has %s keys; want none", n)
	}
	must(t, steps.ErrOf(replica.Ask("REPLICAOF", "NO", "ONE")))
	for name, c := range clients {
		l, err := c.TryLock(t.Context(), "other "+name)
		if err != nil {
			t.Fatalf("%s: the replica is a master now, and said %v", name, err)
		}
		must(t, l.Release(t.Context()))
	}
}

// A failover cuts no connection, and the former master takes writes as a replica too.
func TestFormerMasterThatTakesWritesGrantsNothing(t *testing.T) {
	t.Parallel()
	old, next := testserver.Redis(t, quick, writable), testserver.Redis(t, quick, writable)
	must(t, next.Follow(old.Addr()))
	p := faultproxy.Start(t, old.Addr(), faultproxy.Redis)
	a, atNext := lockingBy(t, p.Addr(), nil), lockingBy(t, next.Addr(), nil)
	held, err := a.Lock(t.Context(), "held")
	must(t, err)
	eventually(t, "the replica has the lock", func() bool {
		n, err := next.Ask("DBSIZE")
		return err == nil && n != "0"
	})
	must(t, steps.ErrOf(next.Ask("REPLICAOF", "NO", "ONE")))
	must(t, old.Follow(next.Addr()))
	wanted, err := atNext.Lock(t.Context(), "wanted")
	must(t, err)
	eventually(t, "the client hears that its server is a replica", func() bool {
		l, err := a.TryLock(t.Context(), "probe")
		if err == nil {
			_ = l.Release(t.Context())
		}
		return errors.Is(err, fencelock.ErrUnavailable)
	})
	if l, err := a.TryLock(t.Context(), "wanted"); !errors.Is(err, fencelock.ErrUnavailable) {
		t.Errorf("the former master said %v, %v; want ErrUnavailable", l, err)
	}
	p.Aim(next.Addr())
	eventually(t, "the client is connected to the new master", func() bool {
		_, err := a.TryLock(t.Context(), "wanted")
		return errors.Is(err, fencelock.ErrNotAcquired)
	})
	must(t, held.Renew(t.Context()))
	must(t, held.Release(t.Context()))
	must(t, wanted.Release(t.Context()))
}

// The workers of a program wait in BLPOP, and have all connections of its go-redis client. Its leases
// are renewed, and released, over a connection of their own.
func TestBlockingCommandsKeepNoLeaseFromItsRenewal(t *testing.T) {
	s := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 2, PoolTimeout: 50 * time.Millisecond})
	defer rdb.Close()
	c := client(t, redislock.New(rdb, nil))
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
	eventually(t, "BLPOP has all connections", func() bool {
		stats := rdb.PoolStats()
		return stats.TotalConns == 2 && stats.IdleConns == 0
	})
	steps.Well(t, "a renewal beside two BLPOPs in a pool of two", l.Renew(t.Context()))
	steps.Well(t, "a release beside two BLPOPs in a pool of two", l.Release(t.Context()))
	if now := connected(); now > before+3 {
		t.Errorf("there are %d connections, and were %d; want two for BLPOP and at most one more", now, before)
	}
	must(t, c.Close())
	must(t, steps.ErrOf(s.Ask("LPUSH", "queue", "1", "2")))
	eventually(t, "only connections of the program are left", func() bool {
		return connected() <= 3 // one asks
	})
}

// One address leads to the master (a name, a load balancer). A failover gives it to the former
// replica, and cuts no connection: the pool is connected to a server that is a replica now.
func TestRedisFailoverWithoutACut(t *testing.T) {
	t.Parallel()
	old, next := testserver.Redis(t, quick), testserver.Redis(t, quick)
	must(t, next.Follow(old.Addr()))
	p := faultproxy.Start(t, old.Addr(), faultproxy.Redis)
	a, b := open(t, "redis://"+p.Addr()), open(t, "redis://"+p.Addr())
	held, err := a.Lock(t.Context(), "held")
	must(t, err)
	wanted, err := a.Lock(t.Context(), "wanted")
	must(t, err)
	granted := make(chan error, 1)
	go func() {
		l, err := b.Lock(t.Context(), "wanted")
		if err == nil {
			err = l.Release(t.Context())
		}
		granted <- err
	}()
	eventually(t, "the wait is in line, also at the replica", func() bool {
		n, err := next.Ask("DBSIZE")
		line, _ := a.Line(t.Context(), "wanted")
		return err == nil && len(line.Claims) > 0 && !line.Claims[len(line.Claims)-1].Granted && n != "0"
	})
	must(t, steps.ErrOf(old.Ask("WAIT", "1", "0")))

	p.Aim(next.Addr())
	must(t, steps.ErrOf(next.Ask("REPLICAOF", "NO", "ONE")))
	must(t, old.Follow(next.Addr()))

	eventually(t, "the holder renews", func() bool {
		err := held.Renew(t.Context())
		if held.Err() != nil {
			t.Fatalf("the lock was lost: %v", held.Err())
		}
		return err == nil
	})
	eventually(t, "a new lock is granted", func() bool {
		l, err := a.TryLock(t.Context(), "new")
		if err == nil {
			must(t, l.Release(t.Context()))
		}
		return err == nil
	})
	must(t, wanted.Release(t.Context()))
	steps.Well(t, "the wait", <-granted)
	must(t, held.Release(t.Context()))
	if _, err := b.TryLock(t.Context(), "held"); err != nil && !errors.Is(err, fencelock.ErrNotAcquired) {
		t.Error(err)
	}
}
