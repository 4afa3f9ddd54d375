package drivertest

import "github.com/fencelock/fencelock/driver"

var tokenLaws = []law{
	{
		name: "TokensRiseFromGrantToGrant",
		when: fencing,
		why: "the resource refuses a writer whose token is below the largest that it has seen: a token that " +
			"does not rise refuses the wrong one",
		check: func(w *world) {
			key := w.key()
			var last driver.Ticket
			for i := range 20 {
				b := []driver.Backend{w.a, w.b}[i%2]
				t := w.hold(b, w.claim(key))
				if t.Token < last.Token+last.Span {
					w.t.Errorf("grant %d has token %d after token %d with a span of %d", i, t.Token, last.Token, last.Span)
				}
				w.leave(b, t, driver.Exit{})
				last = t
			}
		},
	},
	{
		name: "TokensRiseAlongTheLine",
		when: both(fencing, fair),
		why: "the token is drawn on arrival, in the same step that orders the line: drawn anywhere else, two " +
			"claims could get them the other way round",
		check: func(w *world) {
			key := w.key()
			var last int64
			for i := range 8 {
				t := w.enter([]driver.Backend{w.a, w.b}[i%2], w.claim(key))
				if t.Token <= last {
					w.t.Errorf("claim %d in line has token %d, the one before it %d", i, t.Token, last)
				}
				last = t.Token
			}
			last = 0
			for _, s := range w.line(w.a, key).Claims {
				if s.Token <= last {
					w.t.Errorf("the line is not in order of tokens: %d follows %d", s.Token, last)
				}
				last = s.Token
			}
		},
	},
	{
		name: "SpanIsReserved",
		when: fencing,
		why: "a process hands its claim on between its goroutines, each with the next token of the span: " +
			"nobody else may ever get one of those",
		check: func(w *world) {
			for _, span := range []int64{1, 2, 1000, driver.MaxSpan} {
				key := w.key()
				c := w.claim(key)
				c.Span = span
				first := w.hold(w.a, c)
				w.leave(w.a, first, driver.Exit{})
				second := w.hold(w.b, w.claim(key))
				if second.Token < first.Token+span {
					w.t.Errorf("token %d was drawn inside the span of %d tokens from %d", second.Token, span, first.Token)
				}
			}
		},
	},
	{
		name: "SpanIsReservedForWaiters",
		when: both(fencing, fair),
		why:  "a waiting claim has its whole span too: it will hand it on once it is granted",
		check: func(w *world) {
			key := w.key()
			var last driver.Ticket
			for range 4 {
				c := w.claim(key)
				c.Span = 500
				t := w.enter(w.a, c)
				if t.Token < last.Token+last.Span {
					w.t.Errorf("token %d was drawn inside the span of %d tokens from %d", t.Token, last.Span, last.Token)
				}
				last = t
			}
		},
	},
	{
		name: "TokenStaysTheSame",
		why: "a grant has one token for life: a repeated Enter or an Await that drew another would make a " +
			"holder's own writes look stale",
		check: func(w *world) {
			key := w.key()
			c := w.claim(key)
			t := w.hold(w.a, c)
			if again := w.hold(w.a, c); again.Token != t.Token {
				w.t.Errorf("the repeated Enter has token %d; want %d", again.Token, t.Token)
			}
			if again := w.granted(w.a, t); again.Token != t.Token {
				w.t.Errorf("Await has token %d; want %d", again.Token, t.Token)
			}
			if s, _ := w.standing(w.b, t); s.Token != t.Token {
				w.t.Errorf("Lines has token %d; want %d", s.Token, t.Token)
			}
		},
	},
	{
		name: "TokensRiseAfterABrokenClaim",
		when: fencing,
		why:  "the holder that an operator ended may still write: its successor's token must be above it",
		check: func(w *world) {
			key := w.key()
			c := w.claim(key)
			c.Span = 300
			first := w.hold(w.a, c)
			if err := w.b.Break(w.ctx, key, first.Token, "broken"); err != nil {
				w.t.Fatalf("Break: %v", err)
			}
			if second := w.hold(w.b, w.claim(key)); second.Token < first.Token+first.Span {
				w.t.Errorf("token %d follows the broken claim's %d with span %d", second.Token, first.Token, first.Span)
			}
		},
	},
	{
		name: "TokensRiseAfterAnExpiredClaim",
		when: fencing,
		why: "a paused holder writes after its lease has ended: the one time when the token is all that " +
			"protects the resource",
		check: func(w *world) {
			w.timed(func(r *round) {
				c := r.short(r.key())
				c.Span = driver.MaxSpan
				view := r.open()
				var first driver.Ticket
				i := clock(func() { first = r.hold(view, c) })
				r.crash(view)
				r.until(r.over(i, first.TTL))
				if second := r.hold(r.b, r.claim(c.Key)); second.Token < first.Token+first.Span {
					r.t.Errorf("token %d follows the expired claim's %d with span %d", second.Token, first.Token, first.Span)
				}
			})
		},
	},
}
