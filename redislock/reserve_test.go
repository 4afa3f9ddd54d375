package redislock

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/testclient"
)

// TestHotKeyOfOneProcessIsOneScriptForEachSpan counts the server's own scripts.
func TestHotKeyOfOneProcessIsOneScriptForEachSpan(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var waiting atomic.Int32
	c := testclient.New(t, connect(t, s, nil), &fencelock.Options{
		TTL: time.Minute, HandOff: 4,
		OnEvent: testclient.On(fencelock.EventWaiting, func(fencelock.Event) { waiting.Add(1) }),
	})
	defer c.Close()
	first := lock(t, c, "key")
	done := make(chan error)
	const n = 400
	for range n {
		go func() {
			l, err := c.Lock(t.Context(), "key")
			if err == nil {
				err = l.Release(t.Context())
			}
			done <- err
		}()
	}
	eventually(t, "all of them wait", func() bool { return waiting.Load() == n })
	ran := func() int { return calls(t, s, "evalsha") }
	before := ran()
	must(t, first.Release(t.Context()))
	for range n {
		must(t, <-done)
	}
	// One for each four to sixteen grants, one of them for tokens that nobody needs, and the
	// Leave. The first time the server does not know the script.
	if got := ran() - before; got < n/16 || got > n/4+3 {
		t.Errorf("%d scripts for %d grants, four to sixteen for each; want %d to %d", got, n, n/16, n/4+3)
	}
}

// TestReserveKeepsTheLeaseAndItsKey: nothing of a claim is changed but its span, also when it is lengthened again.
func TestReserveKeepsTheLeaseAndItsKey(t *testing.T) {
	b, clock := clocked(t)
	k := hold(t, b, mutex("key"))
	before := line(t, b, "key").Claims[0]
	left := clock.rdb.PTTL(t.Context(), b.hashName("key")).Val()
	for _, span := range []int64{2, 15, limit.Span} {
		if done, err := b.Reserve(t.Context(), k, span); !done || err != nil {
			t.Fatalf("Reserve of %d tokens answered %v, %v", span, done, err)
		}
		before.Span = span
		if l := line(t, b, "key"); l.Claims[0] != before || l.Last != k.Token+span-1 {
			t.Errorf("the line is %+v; want %+v", l, before)
		}
	}
	if now := clock.rdb.PTTL(t.Context(), b.hashName("key")).Val(); now < left-time.Minute {
		t.Errorf("the key stays for %v, and stayed for %v", now, left)
	}
	if done, err := b.Reserve(t.Context(), k, limit.Span+1); done || !permanent(err) {
		t.Errorf("Reserve of more than limit.Span answered %v, %v", done, err)
	}
	leave(t, b, k)

	for range 2 {
		k = hold(t, b, slots("readers", 1, driver.RW))
	}
	if done, err := b.Reserve(t.Context(), k, 9); done || err != nil {
		t.Errorf("Reserve beside another holder answered %v, %v; want that it did nothing", done, err)
	}
}
