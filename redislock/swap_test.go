package redislock

import (
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// TestSwapIsNotForConfirmedGrants: a grant that too few replicas know of is taken back, and
// the claim before it would have left.
func TestSwapIsNotForConfirmedGrants(t *testing.T) {
	t.Parallel()
	g := clusterGroup(t)
	b := closing(t, New(g.dial(), &Options{Replicas: 1}))
	k := hold(t, b, mutex("key"))
	if n, done, err := b.Swap(t.Context(), k, mutex("key")); done || err != nil {
		t.Errorf("Swap with replicas that confirm answered %+v, %v, %v; want that it did nothing", n, done, err)
	}
	leave(t, b, k)
}

// TestHotKeyOfOneProcessIsOneScriptForEachClaim counts the server's own scripts.
func TestHotKeyOfOneProcessIsOneScriptForEachClaim(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	rdb := dial(t, s)
	var waiting atomic.Int32
	c := fencelock.New(connect(t, s, nil), &fencelock.Options{
		TTL: time.Minute, HandOff: 4,
		Hooks: fencelock.Hooks{Waiting: func(fencelock.Event) { waiting.Add(1) }},
	})
	defer c.Close()
	release := make(chan struct{})
	done := make(chan error)
	const n = 400
	for range n {
		go func() {
			l, err := c.Lock(t.Context(), "key")
			if err == nil {
				<-release
				err = l.Release(t.Context())
			}
			done <- err
		}()
	}
	eventually(t, "all of them wait, but for one", func() bool { return waiting.Load() == n-1 })
	ran := func() int {
		m := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(rdb.Info(t.Context(), "commandstats").Val())
		if m == nil {
			t.Fatal("the server does not say how many scripts it ran")
		}
		n, _ := strconv.Atoi(m[1])
		return n
	}
	before := ran()
	close(release)
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	// The last claim leaves. The first time the server does not know the script.
	if got := ran() - before; got < n/4 || got > n/4+1 {
		t.Errorf("%d scripts for %d grants, four by each claim; want %d", got, n, n/4)
	}
}

// TestSwapKeepsTokensRising has a claim whose last token is ahead of the clock.
func TestSwapKeepsTokensRising(t *testing.T) {
	t.Parallel()
	b := connect(t, newServer(t), nil)
	for range 20 {
		c := mutex("key")
		c.Span = driver.MaxSpan // as many µs
		k := hold(t, b, c)
		n, done, err := b.Swap(t.Context(), k, mutex("key"))
		switch {
		case err != nil:
			t.Fatal(err)
		case done && n.Token < k.Token+k.Span:
			t.Fatalf("Swap granted token %d after %d of them from %d", n.Token, k.Span, k.Token)
		case done:
			k = n // this machine stood still for so long
		}
		leave(t, b, k)
	}
}
