package redislock

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testclient"
)

// TestReserveIsNotForConfirmedGrants: a replica that becomes the master may not know of
// tokens that were given.
func TestReserveIsNotForConfirmedGrants(t *testing.T) {
	t.Parallel()
	g := clusterGroup(t)
	b := closing(t, New(g.dial(), &Options{Replicas: 1}))
	k := hold(t, b, mutex("key"))
	if done, err := b.Reserve(t.Context(), k, k.Span+1); done || err != nil {
		t.Errorf("Reserve with replicas that confirm answered %v, %v; want that it did nothing", done, err)
	}
	leave(t, b, k)
}

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

// TestReserveKeepsTheLeaseAndItsRecord: nothing of a claim is changed but its span, also
// when it is lengthened again, and the record is there for as long as an Enter keeps it.
func TestReserveKeepsTheLeaseAndItsRecord(t *testing.T) {
	t.Parallel()
	_, b, rdb := served(t)
	k := hold(t, b, mutex("key"))
	before := line(t, b, "key").Claims[0]
	for span := int64(2); span <= driver.MaxSpan; span = span*8 - 1 {
		rdb.PExpire(t.Context(), b.recordName("key"), time.Hour)
		if done, err := b.Reserve(t.Context(), k, span); !done || err != nil {
			t.Fatalf("Reserve of %d tokens answered %v, %v", span, done, err)
		}
		now := line(t, b, "key").Claims[0]
		if now.Span != span {
			t.Errorf("the line says %d tokens; want %d", now.Span, span)
		}
		if now.Left > before.Left {
			t.Errorf("the lease had %v left, and has %v", before.Left, now.Left)
		}
		before.Span, before.Left = now.Span, now.Left
		if now != before {
			t.Errorf("the line has %+v; want %+v", now, before)
		}
		if lasts := rdb.PTTL(t.Context(), b.recordName("key")).Val(); lasts < 24*time.Hour {
			t.Errorf("the record stays for %v", lasts)
		}
	}
	if done, err := b.Reserve(t.Context(), k, driver.MaxSpan+1); done || !permanent(err) {
		t.Errorf("Reserve of more than MaxSpan answered %v, %v", done, err)
	}
	// A claim that was renewed is lengthened too.
	must(t, renewOne(b, k))
	if done, err := b.Reserve(t.Context(), k, driver.MaxSpan); !done || err != nil {
		t.Errorf("Reserve after a renewal answered %v, %v", done, err)
	}
	if l := line(t, b, "key"); l.Claims[0].Span != driver.MaxSpan || l.Last != k.Token+driver.MaxSpan-1 {
		t.Errorf("after a renewal and a Reserve the line is %+v", l)
	}
	leave(t, b, k)
}
