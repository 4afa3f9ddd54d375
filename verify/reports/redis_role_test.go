package reports

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
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
