package redislock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/redis/go-redis/v9"
)

// seedToken makes the line of key remember a token.
func seedToken(t *testing.T, b *Backend, rdb *redis.Client, key string, last int64) {
	t.Helper()
	must(t, rdb.HSet(t.Context(), b.hashName(key), "format", 2, "last", last).Err())
	if l := line(t, b, key); l.Last != last {
		t.Fatalf("seeded %d, the line says %d", last, l.Last)
	}
}

// No token loses its last digits to Lua, each is above the one before, and the last of all is below 2^53.
func TestTokensAreExactUpTo2To53(t *testing.T) {
	_, b, rdb := served(t)
	now := time.Now().UnixMicro()
	for _, last := range []int64{1<<53 - 300_000, 9999999999, 99999999999999, 5_000_000_000_000_001, now + 40_000_000} {
		for _, span := range []int64{1, 2, 65535} {
			key := fmt.Sprint(last, "/", span)
			seedToken(t, b, rdb, key, last)
			before, line := last, []driver.Ticket(nil)
			for range 3 { // one holds, two wait
				c := mutex(key)
				c.Span = span
				start := time.Now().UnixMicro()
				k := enter(t, b, c)
				if k.Token != before+1 && (k.Token < max(start, before+1) || k.Token > time.Now().UnixMicro()) {
					t.Errorf("%s: token %d follows %d", key, k.Token, before) // and is not the clock
				}
				before = k.Token + span - 1
				line = append(line, k)
			}
			if l, err := b.Line(t.Context(), key); err != nil || l.Last != before || l.Claims[2].Token != line[2].Token {
				t.Errorf("%s: the line is %+v, want the last token %d, %v", key, l, before, err)
			}
			// The span's last token finds the claim; one more does not.
			wantGone(t, key+": Break one past the span", b.Break(t.Context(), key, before+1, driver.Break{}))
			ok(t, b.Break(t.Context(), key, before, driver.Break{}))
			for _, k := range line[:2] {
				leave(t, b, k)
			}
		}
	}
	c := mutex("exhausted")
	c.Span = 2
	for _, last := range []int64{maxToken - 1, maxToken - 2} {
		seedToken(t, b, rdb, c.Key, last)
		if k, err := b.Enter(t.Context(), c); !permanent(err) || !strings.Contains(err.Error(), "no tokens left") {
			t.Errorf("after %d: %+v, %v", last, k, err)
		}
	}
	if k := hold(t, b, mutex(c.Key)); k.Token != maxToken-1 {
		t.Errorf("the last of all tokens is %d", k.Token)
	}
}

// A counter ahead of the clock outlives, by a day, the time until the clock has caught up: neither a clock set back nor a
// crashed client may bring old tokens back.
func TestCounterAheadOfTheClockStaysLonger(t *testing.T) {
	_, b, rdb := served(t)
	for _, ahead := range []time.Duration{50 * time.Second, 10 * 24 * time.Hour} {
		key, end := ahead.String(), time.Now().Add(ahead)
		leave(t, b, hold(t, b, mutex(key))) // it is known for how long the key stays
		seedToken(t, b, rdb, key, end.UnixMicro())
		stays := func(step string) {
			t.Helper()
			if left := rdb.PTTL(t.Context(), b.hashName(key)).Val(); left < time.Until(end)+24*time.Hour-time.Second {
				t.Errorf("%s: a counter that is %v ahead expires in %v", step, ahead, left)
			}
		}
		k := hold(t, b, mutex(key))
		stays("entered")
		must(t, renew(t, b, k))
		stays("renewed")
		next := wait_(t, b, mutex(key))
		leave(t, b, k)
		stays("handed over")
		leave(t, b, next)
		stays("empty")
	}
}
