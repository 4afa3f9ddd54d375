package redislock

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

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
