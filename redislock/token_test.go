package redislock

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/redis/go-redis/v9"
)

// seedToken makes the line of key remember a token.
func seedToken(t *testing.T, b *Backend, rdb *redis.Client, key string, last int64) {
	t.Helper()
	now := time.Now().UnixMicro()
	rec := fmt.Sprintf("1 idle %s 000 0000 %019d %016d %016d 00000 ", strings.Repeat("-", 32), last, now, now)
	must(t, rdb.Set(t.Context(), b.recordName(key), rec, time.Hour).Err())
	if l := line(t, b, key); l.Last != last {
		t.Fatalf("seeded %d, the line says %d", last, l.Last)
	}
}

// A token that passed through a Lua number would lose its last digits above 2^53.
func TestTokensAreExactBeyond2To53(t *testing.T) {
	_, b, rdb := served(t)
	now := time.Now().UnixMicro()
	for _, last := range []int64{
		1<<53 - 70000, 1<<53 - 2, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<53 + 2,
		9999999999, 99999999999999, 999999999999999999, 1<<62 - 1, 1 << 62, 1<<62 + 1, math.MaxInt64 - 1_000_000,
		// Ahead of the clock by less than a minute, and by not much more.
		now + 1_000_000, now + 40_000_000, now + 58_900_000, now + 70_000_000, now + 150_000_000,
	} {
		for _, span := range []int64{1, 2, 65535} {
			for _, contended := range []bool{false, true} {
				key := fmt.Sprintf("%d/%d/%v", last, span, contended)
				seedToken(t, b, rdb, key, last)
				before := last
				var held driver.Ticket
				for i := range 4 {
					c := mutex(key)
					c.Span = span
					start := time.Now().UnixMicro()
					k := enter(t, b, c)
					want := before + 1
					if want < start {
						if k.Token < start || k.Token > time.Now().UnixMicro() {
							t.Errorf("%s: token %d is not the clock", key, k.Token)
						}
					} else if k.Token != want && (k.Token < want || k.Token > time.Now().UnixMicro()) {
						// It is the next one, or the clock, if that has passed it meanwhile.
						t.Errorf("%s: token %d follows %d", key, k.Token, before)
					}
					before = k.Token + span - 1
					if l := line(t, b, key); l.Last != before || l.Claims[len(l.Claims)-1].Token != k.Token {
						t.Errorf("%s: the line says %+v, want last %d", key, l, before)
					}
					if err := renewOne(b, k); err != nil {
						t.Errorf("%s: Renew: %v", key, err)
					}
					if i == 0 && contended {
						held = k
						continue
					}
					// The span's last token finds the claim; one more does not.
					wantGone(t, key+": Break one past the span", b.Break(t.Context(), key, before+1, "", 0))
					if i == 3 {
						if err := b.Break(t.Context(), key, before, "", 0); err != nil {
							t.Errorf("%s: Break of the last token: %v", key, err)
						}
						continue
					}
					leave(t, b, k)
				}
				if contended {
					leave(t, b, held)
				}
				if l := line(t, b, key); len(l.Claims) != 0 || l.Last != before {
					t.Errorf("%s: at the end the line is %+v, want last %d", key, l, before)
				}
			}
		}
	}
}

func TestExhaustedCounterIsAnError(t *testing.T) {
	_, b, rdb := served(t)
	for _, last := range []int64{math.MaxInt64, math.MaxInt64 - 1} {
		seedToken(t, b, rdb, "key", last)
		c := mutex("key")
		c.Span = 2
		if k, err := b.Enter(t.Context(), c); !permanent(err) || !strings.Contains(err.Error(), "no tokens left") {
			t.Errorf("after %d: %+v, %v", last, k, err)
		}
	}
	if k := hold(t, b, mutex("key")); k.Token != math.MaxInt64 {
		t.Errorf("the last of all tokens is %d", k.Token)
	}
}

// A line with a mark does not go through the short way of the script enter. Its tokens stay
// reserved, too.
func TestTokensOfASpanAreReservedBesideAMark(t *testing.T) {
	_, b, _ := served(t)
	c := mutex("marked")
	c.Span = driver.MaxSpan // more tokens than the clock counts in the meantime
	first := hold(t, b, c)
	must(t, b.Leave(t.Context(), first, driver.Exit{Mark: "done"}))
	if next := hold(t, b, mutex("marked")); next.Token < first.Token+first.Span {
		t.Errorf("the token is %d; want at least %d", next.Token, first.Token+first.Span)
	}
}

func TestTokensRiseAcrossARestartWithoutPersistence(t *testing.T) {
	s, b, _ := served(t)
	var last int64
	for range 3 {
		for range 3 {
			c := mutex("key")
			c.Span = 100
			k := hold(t, b, c)
			if k.Token <= last {
				t.Errorf("token %d follows %d", k.Token, last)
			}
			last = k.Token + k.Span - 1
			leave(t, b, k)
		}
		must(t, s.Restart())
		noticed(t, b)
	}
}

// A counter ahead of the clock outlives, by a day, the time until the clock has caught up, after
// each step: neither a clock set back nor a crashed client may bring old tokens back.
func TestCounterAheadOfTheClockStaysLonger(t *testing.T) {
	_, b, rdb := served(t)
	for _, ahead := range []time.Duration{50 * time.Second, 10 * 24 * time.Hour} {
		key := ahead.String()
		end := time.Now().Add(ahead)
		stays := func(step string) {
			t.Helper()
			if left := rdb.PTTL(t.Context(), b.recordName(key)).Val(); left+2*time.Millisecond < time.Until(end)+24*time.Hour { // its clock has milliseconds
				t.Errorf("%s: a counter that is %v ahead expires in %v", step, ahead, left)
			}
		}
		seedToken(t, b, rdb, key, end.UnixMicro())
		short := func() driver.Claim {
			c := mutex(key)
			c.TTL = 10 * time.Second
			return c
		}
		k := hold(t, b, short())
		stays("entered")
		leave(t, b, k)
		stays("left")
		k = hold(t, b, short())
		for range 2 {
			must(t, renewOne(b, k))
			stays("renewed")
		}
		second, third := wait_(t, b, short()), wait_(t, b, short())
		stays("contended")
		leave(t, b, k)
		stays("handed over")
		third = enter(t, b, third.Claim)
		stays("entered again")
		leave(t, b, second)
		leave(t, b, third)
		stays("empty")
		if l := line(t, b, key); len(l.Claims) != 0 {
			t.Errorf("somebody is still in line: %+v", l)
		}
	}
}
