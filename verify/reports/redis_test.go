package reports

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/storeurl"
)

// lockingBy makes a Client with a client of Redis of the program's own.
func lockingBy(t *testing.T, addr string, change func(*redis.Options)) *fencelock.Client {
	t.Helper()
	o := &redis.Options{Addr: addr}
	if change != nil {
		change(o)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	c := testclient.New(t, redislock.New(rdb, nil), &fencelock.Options{TTL: 20 * time.Second})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The client of a program, with its own user, is connected to a replica that takes writes.
func TestClientOfAProgramAtAReplicaThatTakesWrites(t *testing.T) {
	t.Parallel()
	quick := testserver.Config("repl-diskless-sync-delay 0")
	master, replica := testserver.Redis(t, quick), testserver.Redis(t, quick, testserver.Config("replica-read-only no"))
	_, err := replica.Ask("ACL", "SETUSER", "locks", "on", ">pw", "resetkeys", "~fencelock:*", "resetchannels",
		"&fencelock:*", "+eval", "+evalsha", "+time", "+hget", "+hmget", "+hset", "+hdel", "+hgetall", "+get", "+set",
		"+pttl", "+exists", "+zadd", "+zrem", "+zrank", "+zcard", "+zrange", "+pexpireat", "+persist", "+publish",
		"+subscribe", "+ping", "+scan")
	must(t, err)
	must(t, replica.Follow(master.Addr()))
	user := func(o *redis.Options) { o.Username, o.Password = "locks", "pw" }
	clients := map[string]*fencelock.Client{
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
	_, err = replica.Ask("REPLICAOF", "NO", "ONE")
	must(t, err)
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
	o := []testserver.Option{testserver.Config("repl-diskless-sync-delay 0"), testserver.Config("replica-read-only no")}
	old, next := testserver.Redis(t, o...), testserver.Redis(t, o...)
	replicaOf(t, next, old)
	p := faultproxy.Start(t, old.Addr(), faultproxy.Redis)
	a, atNext := lockingBy(t, p.Addr(), nil), lockingBy(t, next.Addr(), nil)
	held, err := a.Lock(t.Context(), "held")
	must(t, err)
	eventually(t, "the replica has the lock", func() bool {
		n, err := next.Ask("DBSIZE")
		return err == nil && n != "0"
	})
	_, err = next.Ask("REPLICAOF", "NO", "ONE")
	must(t, err)
	replicaOf(t, old, next)
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

// A URL names a replica whose replica-read-only is no. It takes writes, and what it grants its
// master knows nothing of.
func TestReplicaThatTakesWritesGrantsNothing(t *testing.T) {
	master := testserver.Redis(t, testserver.Config("repl-diskless-sync-delay 0"))
	replica := testserver.Redis(t, testserver.Config("replica-read-only no"))
	open := func(s *testserver.Server) *fencelock.Client {
		opened, err := storeurl.Open(t.Context(), s.URL())
		must(t, err)
		t.Cleanup(opened.Close)
		c := testclient.New(t, opened.Backend, nil)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	must(t, replica.Follow(master.Addr()))
	opened, err := storeurl.Open(t.Context(), replica.URL())
	must(t, err)
	defer opened.Close()
	if err := opened.Ping(t.Context()); !errors.As(err, new(*storeurl.ConfigError)) {
		t.Errorf("the command says %v; want a ConfigError", err)
	}
	c := open(replica)
	if l, err := c.TryLock(t.Context(), "job"); !errors.Is(err, fencelock.ErrUnavailable) {
		second, failed := open(master).TryLock(t.Context(), "job")
		t.Fatalf("the replica granted %v, %v; want ErrUnavailable. Its master granted %v, %v", l, err, second, failed)
	}
	must(t, steps.ErrOf(replica.Ask("REPLICAOF", "NO", "ONE")))
	testserver.Eventually(t, 30*time.Second, "the replica is a master, and grants", func() bool {
		l, err := c.TryLock(t.Context(), "other")
		return err == nil && l.Release(t.Context()) == nil
	})
}

// A try finds the lock held, and its connection is reset on the way. go-redis sends the try
// again at once. The first copy of the request arrives when the holder has released. Without a
// tombstone it takes the lock for a client that has been refused, and keeps it for a TTL.
func TestATryThatWasRefusedHoldsNothingLater(t *testing.T) {
	s := testserver.Redis(t)
	p := faultproxy.Start(t, s.Addr(), faultproxy.Redis)
	open := func(addr string) *fencelock.Client {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { rdb.Close() })
		c, err := fencelock.New(redislock.New(rdb, nil), nil)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	holder, other := open(s.Addr()), open(p.Addr())
	held, err := holder.Lock(t.Context(), "job")
	must(t, err)
	evals, late := 0, make(chan struct{})
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if name := r.Args()[0]; name != "evalsha" && name != "eval" {
			return faultproxy.Pass
		}
		if evals++; evals > 1 {
			return faultproxy.Pass
		}
		r.AfterCut = func() { close(late) } // once the server has answered what was late
		return faultproxy.LateRequest
	})
	if _, err := other.TryLock(t.Context(), "job"); !errors.Is(err, fencelock.ErrNotAcquired) {
		t.Fatalf("the try answered %v; want ErrNotAcquired", err)
	}
	must(t, held.Release(t.Context()))
	p.Resume()
	<-late
	again, err := holder.TryLock(t.Context(), "job")
	if err != nil {
		t.Fatalf("nobody holds the lock, and a try answered %v", err)
	}
	steps.OK(t, again.Release(t.Context()))
}

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

var eventually = steps.Eventually

// One address leads to the master (a name, a load balancer). A failover gives it to the former
// replica, and cuts no connection: the pool is connected to a server that is a replica now.
func TestRedisFailoverWithoutACut(t *testing.T) {
	t.Parallel()
	quick := testserver.Config("repl-diskless-sync-delay 0")
	old, next := testserver.Redis(t, quick), testserver.Redis(t, quick)
	replicaOf(t, next, old)
	p := faultproxy.Start(t, old.Addr(), faultproxy.Redis)
	open := func() *fencelock.Client {
		opened, err := storeurl.Open(t.Context(), "redis://"+p.Addr())
		must(t, err)
		t.Cleanup(opened.Close)
		c := testclient.New(t, opened.Backend, &fencelock.Options{TTL: 20 * time.Second})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := open(), open()
	held, err := a.Lock(t.Context(), "held")
	must(t, err)
	wanted, err := a.Lock(t.Context(), "wanted")
	must(t, err)
	granted := make(chan error, 1)
	go func() {
		l, err := b.Lock(t.Context(), "wanted", fencelock.Wait(30*time.Second))
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
	_, err = old.Ask("WAIT", "1", "5000")
	must(t, err)

	p.Aim(next.Addr())
	_, err = next.Ask("REPLICAOF", "NO", "ONE")
	must(t, err)
	replicaOf(t, old, next)

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

// replicaOf makes s a replica, and waits until it follows.
func replicaOf(t *testing.T, s, master *testserver.Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	_, err := s.Ask("REPLICAOF", host, port)
	must(t, err)
	eventually(t, "the replica follows", func() bool {
		info, err := master.Ask("INFO", "replication")
		return err == nil && strings.Contains(info, "state=online")
	})
}
