package redislock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/redis/go-redis/v9"
)

func TestPrefixesDoNotMix(t *testing.T) {
	s := newServer(t)
	prefixes := []string{"", "a:", "a:b:", "app:{one}:", "x*", "x"}
	for _, p := range prefixes {
		hold(t, connect(t, s, &Options{Prefix: p}), mutex("key"))
	}
	for _, p := range prefixes {
		n := 0
		for l, err := range connect(t, s, &Options{Prefix: p}).Lines(t.Context(), "") {
			if err != nil || l.Key != "key" || len(l.Claims) != 1 {
				t.Errorf("prefix %q: %+v, %v", p, l, err)
			}
			n++
		}
		if n != 1 {
			t.Errorf("prefix %q lists %d locks", p, n)
		}
	}
}

func TestBadOptionsAreTheAnswerToTheFirstCall(t *testing.T) {
	for name, b := range map[string]*Backend{
		"no client":      New(nil, nil),
		"empty hash tag": New(redis.NewClient(&redis.Options{}), &Options{Prefix: "a{}b"}),
		"a ring":         New(redis.NewRing(&redis.RingOptions{}), nil),
		"replicas":       New(redis.NewClient(&redis.Options{}), &Options{Replicas: -1}),
		"a wait":         New(redis.NewClient(&redis.Options{}), &Options{Replicas: 1, ReplicaWait: -1}),
	} {
		if _, err := b.Enter(t.Context(), mutex("key")); !permanent(err) {
			t.Errorf("%s: Enter answered %v", name, err)
		}
		b.Close()
	}
}

// A service holds many locks at a time: each is small.
func TestHeldLockIsSmall(t *testing.T) {
	_, b, rdb := served(t)
	hold(t, b, mutex("orders/42"))
	if n := rdb.MemoryUsage(t.Context(), b.hashName("orders/42"), 0).Val(); n > 700 {
		t.Errorf("a held lock takes %d bytes; want at most 700", n)
	}
}

// Whatever happens to a lock, what is left of it is one hash that ends in one to
// two days; with a mark, it stays.
func TestNothingStaysButTheCounter(t *testing.T) {
	_, b, rdb := served(t)
	ctx := t.Context()
	leave(t, b, hold(t, b, mutex("free")))

	k := hold(t, b, mutex("contended"))
	var contended []driver.Ticket
	for range 20 {
		contended = append(contended, wait_(t, b, mutex("contended")))
	}
	leave(t, b, k)
	for _, k := range contended {
		leave(t, b, k)
	}

	k = hold(t, b, mutex("marked"))
	must(t, b.Leave(ctx, k, driver.Exit{Mark: "m"}))
	leave(t, b, hold(t, b, mutex("marked")))

	names := rdb.Keys(ctx, "*").Val()
	if len(names) != 3 {
		t.Errorf("three empty lines keep %q", names)
	}
	for _, name := range names {
		ttl := rdb.TTL(ctx, name).Val()
		if marked := strings.Contains(name, "marked"); marked != (ttl < 0) {
			t.Errorf("%s stays for %v", name, ttl)
		}
		if ttl > 0 && (ttl < 24*time.Hour || ttl > 49*time.Hour) {
			t.Errorf("%s stays for %v, want one to two days", name, ttl)
		}
	}
}

func TestLockOfAnotherVersionIsRefused(t *testing.T) {
	_, b, rdb := served(t)
	rdb.Set(t.Context(), b.hashName("first"), "1 held", 0)
	everyCall(t, b, "first", func(name string, err error) {
		if !permanent(err) || !strings.Contains(err.Error(), "an older fencelock") {
			t.Errorf("%s on a lock of the first version answered %v", name, err)
		}
	})
	rdb.HSet(t.Context(), b.hashName("key"), "format", 3, "last", 1)
	everyCall(t, b, "key", func(name string, err error) {
		if !permanent(err) || !strings.Contains(err.Error(), "another version") {
			t.Errorf("%s on a lock of a later version answered %v", name, err)
		}
	})
	if got := rdb.HGetAll(t.Context(), b.hashName("key")).Val(); len(got) != 2 {
		t.Errorf("the lock of another version is now %q", got)
	}
}

// A lock that is damaged may be anybody's: the answer is an error, never a grant.
func TestDamagedLockIsAnErrorAndNoGrant(t *testing.T) {
	_, b, rdb := served(t)
	ctx := t.Context()
	seed := drivertest.Seeds(t, 1)[0]
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, key := range []string{"held", "line"} {
		k := hold(t, b, mutex(key))
		if key == "line" {
			wait_(t, b, mutex(key))
		}
		whole := rdb.HGetAll(ctx, b.hashName(key)).Val()
		for _, field := range []string{"c:" + k.ID, "held", "size", "soonest", "waits", "kept"} {
			for i := range min(20, 20*len(whole[field])) {
				bad := whole[field][:r.IntN(len(whole[field]))] // cut off
				if i%2 == 1 {
					bad = strings.Repeat("x", r.IntN(200))
				}
				must(t, rdb.HSet(ctx, b.hashName(key), field, bad).Err())
				if k, err := b.Enter(ctx, noWait(mutex(key))); err == nil {
					t.Errorf("with %s %q, of %q, a second claim was granted: %+v", field, bad, whole[field], k)
				}
				must(t, rdb.HSet(ctx, b.hashName(key), field, whole[field]).Err())
			}
		}
	}
}

// Eviction takes single keys. Nobody may be let in beside a holder that is left, and when it has
// left the lock works again.
func TestLineThatLostAPartHeals(t *testing.T) {
	_, b, rdb := served(t)
	for _, part := range []string{"v", "w"} {
		key := "key " + part
		k := hold(t, b, mutex(key))
		w := wait_(t, b, mutex(key))
		if n := rdb.Del(t.Context(), b.hashName(key)+part).Val(); n != 1 {
			t.Fatalf("there was no %s", part)
		}
		if k, err := b.Enter(t.Context(), noWait(mutex(key))); err == nil {
			t.Errorf("without %s a claim was let in: %+v", part, k)
		}
		wantGone(t, "who waited", steps.ErrOf(b.read(t.Context(), w)))
		leave(t, b, k)
		k = hold(t, b, mutex(key))
		next := wait_(t, b, mutex(key))
		leave(t, b, k)
		granted(t, b, next)
		leave(t, b, next)
	}
}

// What is left of a line whose record was evicted must not count in the next one.
func TestLineWhoseHashWasLostBeginsAnew(t *testing.T) {
	_, b, rdb := served(t)
	old := []driver.Ticket{hold(t, b, slots("key", 1, 2)), hold(t, b, slots("key", 1, 2)), wait_(t, b, slots("key", 2, 2))}
	rdb.Del(t.Context(), b.hashName("key"))
	for i, err := range b.Renew(t.Context(), old) {
		wantGone(t, fmt.Sprintf("Renew of claim %d of the lost line", i), err)
	}
	now := []driver.Ticket{hold(t, b, slots("key", 1, 2)), hold(t, b, slots("key", 1, 2)), wait_(t, b, slots("key", 2, 2))}
	for i, err := range b.Renew(t.Context(), old) {
		wantGone(t, fmt.Sprintf("Renew of claim %d of the lost line", i), err)
	}
	for i, k := range old {
		wantGone(t, fmt.Sprintf("Leave of claim %d of the lost line", i), b.Leave(t.Context(), k, driver.Exit{}))
	}
	if l := line(t, b, "key"); len(l.Claims) != 3 || l.Claims[2].Granted {
		t.Errorf("the new line is %+v", l)
	}
	leave(t, b, now[0])
	leave(t, b, now[1])
	granted(t, b, now[2])
	leave(t, b, now[2])
}

// callsOf are the calls of b on the claim of k.
func callsOf(b *Backend, k driver.Ticket) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Enter": func(ctx context.Context) error { return steps.ErrOf(b.Enter(ctx, mutex(k.Key))) },
		"Await": func(ctx context.Context) error { return steps.ErrOf(b.Await(ctx, k)) },
		"Renew": func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{k})[0] },
		"Leave": func(ctx context.Context) error { return b.Leave(ctx, k, driver.Exit{}) },
		"Leave with a mark": func(ctx context.Context) error {
			return b.Leave(ctx, k, driver.Exit{Mark: "m"})
		},
		"Break": func(ctx context.Context) error { return b.Break(ctx, k.Key, k.Token, driver.Break{Reason: "reason"}) },
		"Line":  func(ctx context.Context) error { return steps.ErrOf(b.Line(ctx, k.Key)) },
		"Lines": func(ctx context.Context) (err error) {
			for _, err = range b.Lines(ctx, k.Key) {
			}
			return err
		},
	}
}

// everyCall makes each call on key once. Lines shows nothing of a key that is no lock.
func everyCall(t *testing.T, b *Backend, key string, check func(name string, err error)) {
	t.Helper()
	ctx := context.Background()
	for name, call := range callsOf(b, driver.Ticket{Claim: mutex(key), Token: 7}) {
		err := call(ctx)
		if name != "Lines" || err != nil || b.rdb.Type(ctx, b.hashName(key)).Val() == "hash" {
			check(name, err)
		}
	}
}
