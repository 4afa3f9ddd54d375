package drivertest

import "github.com/fencelock/fencelock/driver"

var tokenLaws = []law{
	{"TokensRiseFromGrantToGrant", fencing,
		"the resource refuses a writer whose token is below the largest that it has seen: a token that does not " +
			"rise refuses the wrong one",
		func(w *world, key string) {
			last := &inLine{}
			for i := range 20 {
				t := w.views()[i%2].holds(w.claim(key))
				t.follows(last)
				t.leaves()
				last = t
			}
		}},
	{"TokensRiseAlongTheLine", all(fencing, fair),
		"the token is drawn on arrival, in the same step that orders the line: drawn anywhere else, two claims " +
			"could get them the other way round",
		func(w *world, key string) {
			var last int64
			for i := range 8 {
				t := w.views()[i%2].enter(w.claim(key))
				w.wrongIf(t.Token <= last, "claim %d in line has token %d, the one before it %d", i, t.Token, last)
				last = t.Token
			}
			last = 0
			for _, s := range w.a.line(key).Claims {
				w.wrongIf(s.Token <= last, "the line is not in order of tokens: %d follows %d", s.Token, last)
				last = s.Token
			}
		}},
	{"SpanIsReserved", fencing,
		"a process hands its claim on between its goroutines, each with the next token of the span: nobody else " +
			"may ever get one of those",
		func(w *world, _ string) {
			for _, span := range []int64{1, 2, 1000, driver.MaxSpan} {
				first := w.a.holds(w.spanning(w.key(), span))
				first.leaves()
				w.b.holds(w.claim(first.Key)).follows(first)
			}
		}},
	{"SpanIsReservedForWaiters", all(fencing, fair),
		"a waiting claim has its whole span too: it will hand it on once it is granted",
		func(w *world, key string) {
			last := &inLine{}
			for range 4 {
				t := w.a.enter(w.spanning(key, 500))
				t.follows(last)
				last = t
			}
		}},
	{"TokenStaysTheSame", nil,
		"a grant has one token for life: a repeated Enter or an Await that drew another would make a holder's own " +
			"writes look stale",
		func(w *world, key string) {
			t := w.a.holds(w.claim(key))
			again := w.a.holds(t.Claim)
			w.wrongIf(again.Token != t.Token, "the repeated Enter has token %d; want %d", again.Token, t.Token)
			t.granted()
			s, _ := t.standing()
			w.wrongIf(s.Token != t.Token, "Lines has token %d; want %d", s.Token, t.Token)
		}},
	{"TokensRiseAfterABrokenClaim", fencing,
		"the holder that an operator ended may still write: its successor's token must be above it",
		func(w *world, key string) {
			first := w.a.holds(w.spanning(key, 300))
			first.brokenBy(w.b, "broken")
			w.b.holds(w.claim(first.Key)).follows(first)
		}},
	{"TokensRiseAfterAnExpiredClaim", fencing,
		"a paused holder writes after its lease has ended: the one time when the token is all that protects the " +
			"resource",
		timed(func(r *round, key string) {
			c := r.short(key)
			c.Span = driver.MaxSpan
			first := r.view().holds(c)
			first.crashes()
			first.expires()
			r.b.holds(r.claim(c.Key)).follows(first)
		})},
}
