package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

// A backend may always answer that it has done nothing. Then nothing must have changed.
var reserveLaws = []law{
	{"ReservedTokensAreTheClaims", reserves, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		if !t.reserves(6) {
			return
		}
		t.stillSpans()
		w.b.refused(w.claim(key))
		t.leaves()
		next := w.b.holds(w.claim(key))
		next.follows(t)
		if next.reserves(6) {
			err := w.a.Break(w.ctx, key, next.Token+5, driver.Break{Reason: "enough"})
			w.wrongIf(err != nil, "Break by the last token that was reserved: %v", err)
			w.gone("Renew of the claim that was broken", next.renew())
		}
	}, "reserved tokens go to goroutines of the holder: nobody else may have one, and each finds the claim"},
	{"ReserveShortensNothing", reserves, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		if !t.reserves(10) {
			return
		}
		t.reserves(4)
		t.leaves()
		w.b.holds(w.claim(key)).follows(t)
	}, "a call that arrives after a later one would have tokens granted again that were given already"},
	{"ReserveIsForWhoIsAlone", all(fair, reserves), func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		waiter := w.b.waits(w.claim(key))
		w.wrongIf(t.reserves(6),
			"Reserve with another claim in line was done; want it refused, so that the other has its turn")
		waiter.stillWaits()
		t.leaves()
		waiter.granted()
	}, "a process that goes on forever with one claim lets nobody in"},
	{"ReserveTakesNoTokenThatWasDrawn", all(fair, reserves), func(w *world, _ string) {
		for {
			key := w.key()
			t := w.a.holds(w.claim(key))
			waiter := w.b.waits(w.claim(key)).leaves()
			span := waiter.Token - t.Token + 1
			if span > limit.Span { // tokens follow the clock, and the second claim came late
				continue
			}
			done := t.reserves(span)
			w.wrongIf(done, "Reserve was done as far as token %d, which another claim has drawn", waiter.Token)
			return
		}
	}, "two claims must not have one token, though one of them has left: an operator would break the other"},
	{"ReserveForAClaimThatIsGone", reserves, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).leaves()
		w.wrongIf(t.reserves(6), "Reserve for a claim that has left was done")
		w.b.empty(key)
		next := w.b.holds(w.claim(key))
		w.wrongIf(t.reserves(6), "Reserve for a claim that has left was done, in another's")
		next.stillSpans()
	}, "a call that arrives late must not bring in a claim that nobody holds any more, nor change another's"},
	{"ReserveStartsNoLease", reserves, timed(func(w *world, key string) {
		t := w.a.holds(w.short(key))
		if w.info.SharedLease {
			return
		}
		w.until(t.sent.Add(t.TTL / 2))
		t.reserves(6)
		t.expires()
		w.wrongIf(t.reserves(10), "Reserve for a claim whose lease was over was done")
		w.b.empty(key)
	}), "the core renews and counts the lease: a claim must end when its client believes it has"},
}

// reserves asks for span tokens. If the answer is no, nothing must have changed.
func (x *inLine) reserves(span int64) bool {
	w := x.at.w
	before, held := x.standing()
	done, err := x.at.Backend.(driver.Reserver).Reserve(w.ctx, x.Ticket, span)
	w.must("Reserve", err)
	after, holds := x.standing()
	if held && !holds {
		w.inTime("the look after Reserve", time.Now(), x.ends())
	}
	w.wrongIf(!done && (holds != held || after.Span != before.Span),
		"Reserve says that it has done nothing, and the claim had %d tokens before: %+v", before.Span, after)
	w.wrongIf(after.Span < before.Span && held && holds || done && holds && after.Span < span,
		"after Reserve of %d tokens the claim has %d; it had %d", span, after.Span, before.Span)
	w.wrongIf(holds && after.Token != before.Token,
		"Reserve changed the token from %d to %d", before.Token, after.Token)
	if done {
		x.Span = max(x.Span, span)
	}
	return done
}
