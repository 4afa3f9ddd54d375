package redislock

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
)

// FuzzKey: any bytes make a name that holds them alone, that Cluster finds a slot for,
// and that says at its beginning what the key says at its.
func FuzzKey(f *testing.F) {
	for _, key := range []string{"", "orders/42", "{a}b{c}", "%41", "%", "a%4", "\x00\r\n \x7f", `"\`, "锁/é", "\xff\xfe", "*?[a]", strings.Repeat("{", limit.Key)} {
		f.Add(key, uint(len(key)/2))
	}
	b := &Backend{prefix: "fencelock:"}
	f.Fuzz(func(t *testing.T, key string, cut uint) {
		tag := keyEscaping.Escape(key)
		if strings.ContainsAny(tag, "{}\"\\ \r\n\t\x00\x7f") {
			t.Errorf("%q is encoded as %q, which no hash tag may hold", key, tag)
		}
		if got, ok := keyEscaping.Unescape(tag); !ok || got != key {
			t.Errorf("%q is encoded as %q, and read as %q, %v", key, tag, got, ok)
		}
		if got, ok := b.keyOf(b.hashName(key)); !ok || got != key {
			t.Errorf("the name of %q is read as that of %q, %v", key, got, ok)
		}
		if begins := keyEscaping.Escape(key[:cut%uint(len(key)+1)]); !strings.HasPrefix(tag, begins) {
			t.Errorf("%q does not begin with %q", tag, begins)
		}
	})
}

// FuzzClaim: what a claim writes is read again, whatever its texts hold.
func FuzzClaim(f *testing.F) {
	f.Add("ABCDEFGH", "host/1", "note", "00-4bf9", int64(20e6), int64(driver.RW), int64(1), int64(64))
	f.Add("1:2;3", "4 5 6", "", "7 8 9", int64(0), int64(3), int64(2), int64(1))
	f.Add("", "锁", "\x00\xff;", "", int64(1), int64(1), int64(1), int64(65535))
	f.Fuzz(func(t *testing.T, id, owner, note, trace string, delay, capacity, weight, span int64) {
		c := driver.Claim{Key: "k", ID: id, Owner: owner, Note: note, Trace: trace,
			LockDelay: time.Duration(delay) * time.Microsecond, Capacity: capacity, Weight: weight, Span: span, TTL: time.Second}
		if id == "" || c.Validate(New(nil, nil).Info()) != nil {
			return
		}
		const start = 1_800_000_000_000_000
		kept := fmt.Sprintf("%d %d %d %d %d %s", start+1_000_000, start, start, span, weight, claimTail(&c, "ABCDEFGHIJKLMNOP"))
		line, err := parseLine("k", fmt.Sprint(start, " ", start, " ", capacity, " 1 ", texts("", "c:"+id, kept, "")))
		if err != nil || len(line.Claims) != 1 {
			t.Fatalf("%q is read as %+v, %v", kept, line, err)
		}
		want := driver.Standing{
			Claim: driver.Claim{ID: driverutil.ShortID(id), Owner: owner, Note: note, Trace: trace, LockDelay: c.LockDelay,
				Capacity: capacity, Weight: weight, Span: span},
			Token: start, Granted: true, Since: time.UnixMicro(start), Left: c.TTL,
		}
		if got := line.Claims[0]; got != want {
			t.Errorf("%q is read as %+v; want %+v", kept, got, want)
		}
	})
}

// keptClaim is a claim as a lock keeps it.
const keptClaim = "1800000030000000 1800000000000000 1800000000000000 64 1048576 chan 0 1 o 1 t n"

// FuzzLine: what a server, or whoever writes into it, makes of a line is an error or a
// line, never a panic.
func FuzzLine(f *testing.F) {
	const now, last = "1800000000000001", "1800000000000063"
	f.Add(now, last, "c:ABC", "1048576", keptClaim)
	f.Add(now, last, "l:ABC", "4", keptClaim)
	f.Add("", last, "ABC", "NaN", keptClaim[:60])
	f.Add("1", "-1", "c", "1e300", keptClaim)
	f.Add(now, last, "c:ABC", "4", strings.Replace(keptClaim, "chan 0 1", "chan 0 9223372036854775807", 1))
	f.Fuzz(func(t *testing.T, now, last, id, size, claim string) {
		head := now + " " + last + " " + size + " 1 "
		if line, err := parseLine("k", head+texts("mark", id, claim, "")); err == nil {
			plausible(t, line)
		}
		if _, err := parseLine("k", head+texts("mark", id)); err == nil {
			t.Error("half a claim is read")
		}
	})
}

// texts writes texts as an answer has them.
func texts(all ...string) (answer string) {
	for _, s := range all {
		answer += prefixed(s)
	}
	return answer
}

// plausible checks what everybody who is shown a line relies on.
func plausible(t *testing.T, line driver.Line) {
	t.Helper()
	if line.Last < 0 {
		t.Errorf("the last token is %d", line.Last)
	}
	for _, c := range line.Claims {
		if c.Token < 0 || c.Weight < 0 || c.Capacity < 0 || c.Span < 1 || c.Left > 2*maxTTL {
			t.Errorf("a claim makes no sense: %+v", c)
		}
	}
}

// answer makes a reply of Redis: a text, or what no script answers.
func answer(form byte, text string) any {
	switch form % 3 {
	case 1:
		return int64(len(text))
	case 2:
		return []any{text, nil, []any{text}, true}
	}
	return text
}

// FuzzReply: whatever a server answers to a command is an error or makes sense.
func FuzzReply(f *testing.F) {
	for _, s := range []string{
		"g1800000000000000 mark", "g-1 ", "g", "k", "xl", "xbbecause", "x", "b5", "q5000000", "mskew 1m", "+", "+-x|xl", "",
		"g1800000000000000 64 30000000 mark", "w1800000000000000 64 30000000 1 1 1800000000000000 " + keptClaim,
		"w1 1 1 9223372036854775807 9223372036854775807 1 ", "n1 1800000000000000 " + keptClaim, "n1", "w", "c5 6",
	} {
		for form := range byte(3) {
			f.Add(form, s)
		}
	}
	c := driver.Claim{Key: "k", ID: "ABC", Owner: "o", Capacity: driver.RW, Weight: driver.RW, Span: 64, TTL: 30 * time.Second}
	f.Fuzz(func(t *testing.T, form byte, text string) {
		a := answer(form, text)
		switch got, soonest, ok := parseTicket(c, a); {
		case !ok:
			if refusal(&c, a) == nil {
				t.Errorf("%#v is no ticket, and no refusal", a)
			}
		case got.Token < 1 || got.Token > math.MaxInt64-got.Span || got.Span < 1 || got.Span > limit.Span:
			t.Errorf("%#v is a ticket with token %d of span %d", a, got.Token, got.Span)
		case got.Left < -2*maxTTL || got.Left > 2*maxTTL || got.Ahead < 0 || soonest < -2*maxTTL || soonest > 2*maxTTL:
			t.Errorf("%#v is a ticket that makes no sense: %+v, soonest %v", a, got, soonest)
		case got.Granted == (got.Head != nil):
			t.Errorf("%#v: granted is %v, the head %v", a, got.Granted, got.Head)
		}
		if err := (&Backend{}).done(t.Context(), "doing", "k", &request{answer: a}); err == nil && a != "+" {
			t.Errorf("%#v is taken for done", a)
		}
	})
}

// FuzzMessage: whatever is published to the channel of a process does no harm: a
// message is a hint, and one that makes no sense is dropped.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{"", "g", "g4:mark3:ABC", "b3:ABCreason", "l3:ABC", "g99:x", "g-1:", "b", "x3:ABC", "g0:3:AB", "g0:2:AB", "g:", "g5:abc", "g0:9:abc", "b4:a", "l:", "z1:a", "g1e1:", "\x00"} {
		f.Add(s)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is sent
	f.Cleanup(func() { rdb.Close() })
	b := New(rdb, nil)
	f.Cleanup(func() { b.Close() })
	var told []string
	b.Alarm(func(id string, _ driver.GoneError) { told = append(told, id) })
	f.Fuzz(func(t *testing.T, message string) {
		told = nil
		b.waiters.expect("ABC")
		b.subscriber.handle(message)
		w := b.waiters.get("ABC")
		b.waiters.forget("ABC")
		if about := strings.Contains(message, "3:ABC"); !about && (w.granted || w.stale || w.gone != nil) {
			t.Errorf("%q is not about the claim, and changed it: %+v", message, w)
		}
		if len(told) > 0 && message[0] != 'b' {
			t.Errorf("%q told the alarm of %q", message, told)
		}
	})
}
