package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/internal/limit"
)

var tokenLaws = []law{
	{"TokensRiseFromGrantToGrant", nil, func(w *world, key string) {
		w.rise(20, func(v *view) *inLine { return v.holds(w.claim(key)).leaves() })
	}, "the resource refuses a token below the largest it has seen: one that does not rise refuses the wrong writer"},
	{"TokensRiseAlongTheLine", fair, func(w *world, key string) {
		w.rise(8, func(v *view) *inLine { return v.enter(w.claim(key)) })
		var last int64
		for _, s := range w.a.line(key).Claims {
			w.wrongIf(s.Token <= last, "the line is not in order of tokens: %d follows %d", s.Token, last)
			last = s.Token
		}
	}, "the step that orders the line draws the token: two steps could order two claims the other way round"},
	{"SpanIsReserved", nil, func(w *world, _ string) {
		for _, span := range []int64{1, 2, 1000, limit.Span} {
			first := w.a.holds(spanning(w.claim(w.key()), span)).leaves()
			w.b.holds(w.claim(first.Key)).follows(first)
		}
	}, "goroutines of one process share a claim, each with its own token of the span: nobody else may get one"},
	{"SpanIsReservedForWaiters", fair, func(w *world, key string) {
		w.rise(4, func(v *view) *inLine { return v.enter(spanning(w.claim(key), 500)) })
	}, "a waiting claim has its whole span too: it will hand it on once it is granted"},
	{"TokenStaysTheSame", nil, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		same(w, "the token of the repeated Enter", w.a.holds(t.Claim).Token, t.Token)
		same(w, "the token in Lines", t.granted().stillThere().Token, t.Token)
	}, "a grant has one token for life: another one would make the holder's own writes look stale"},
	{"AfterComesBeforeTheClock", follows, func(w *world, key string) {
		if now := time.Now().UnixMicro(); w.a.holds(w.claim(w.key())).leaves().Token > now-time.Hour.Microseconds() {
			same(w, "the token of the first claim", w.a.holds(after(w.claim(key), 1000)).leaves().Token, 1001)
			same(w, "the token of a claim that follows a lower one",
				w.b.holds(after(w.claim(key), 5)).leaves().Token, 1002)
		}
		now := w.a.holds(w.claim(key)).leaves()
		w.wrongIf(now.Token <= 1002, "a claim without After has the token %d, not its own", now.Token)
		ahead := w.b.holds(after(spanning(w.claim(key), 5), now.Token+1_000_000_000_000_000)).leaves()
		same(w, "the token of a claim that follows one far ahead", ahead.Token, now.Token+1_000_000_000_000_001)
		next := w.a.holds(after(w.claim(key), 5)).leaves()
		same(w, "the token of a claim that follows a span", next.Token, ahead.Token+5)
		last := w.b.holds(w.claim(key))
		last.follows(next)
		w.a.waits(w.claim(key)).follows(last)
	}, "a lock held in two stores has one token: who waits in the first store has drawn a later one already"},
	{"TokensRiseAfterABrokenClaim", nil, func(w *world, key string) {
		first := w.a.holds(spanning(w.claim(key), 300)).brokenBy(w.b, "broken")
		w.b.holds(w.claim(first.Key)).follows(first)
	}, "the holder that an operator ended may still write: its successor's token must be above it"},
	{"TokensRiseAfterAnExpiredClaim", nil, timed(func(w *world, key string) {
		first := w.view().holds(spanning(w.short(key), limit.Span)).crashes().expires()
		w.b.holds(w.claim(key)).follows(first)
	}), "a paused holder may write after its lease has ended: then the token alone protects the resource"},
}

// rise has views enter in turn: each token must be above those of the claim before.
func (w *world) rise(n int, enter func(v *view) *inLine) {
	ts := w.line(n, enter)
	for i := range ts[1:] {
		ts[i+1].follows(ts[i])
	}
}
