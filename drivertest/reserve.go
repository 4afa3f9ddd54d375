package drivertest

import (
	"github.com/fencelock/fencelock/driver"
)

// A backend may always answer that it has done nothing. Then nothing must have changed.
var reserveLaws = []law{
	{"ReservedTokensAreTheClaims", reserves, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		if !t.reserves(t.Span + 5) {
			return
		}
		s, _ := t.standing()
		w.wrongIf(s.Token != t.Token || s.Span != t.Span+5,
			"after Reserve the line says token %d, %d of them; want %d, %d", s.Token, s.Span, t.Token, t.Span+5)
		w.b.refused(w.claim(t.Key))
		t.leaves()
		next := w.b.holds(w.claim(t.Key))
		w.wrongIf(next.Token < t.Token+t.Span+5,
			"token %d was granted after %d of them from %d", next.Token, t.Span+5, t.Token)
		if next.reserves(next.Span + 5) {
			err := w.a.Break(w.ctx, t.Key, next.Token+next.Span+4, "enough")
			w.wrongIf(err != nil, "Break by the last token that was reserved: %v", err)
			w.gone("Renew of the claim that was broken", next.renew())
		}
	}, "reserved tokens go to goroutines of the holder: nobody else may have one, and each finds the claim"},
	{"ReserveShortensNothing", reserves, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		if !t.reserves(t.Span + 9) {
			return
		}
		t.reserves(t.Span + 3)
		t.leaves()
		next := w.b.holds(w.claim(t.Key))
		w.wrongIf(next.Token < t.Token+t.Span+9,
			"token %d was granted after %d of them from %d", next.Token, t.Span+9, t.Token)
	}, "a call that arrives after a later one would have tokens granted again that were given already"},
	{"ReserveIsForWhoIsAlone", all(fair, reserves), func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		waiter := w.b.waits(w.claim(t.Key))
		w.wrongIf(t.reserves(t.Span+5),
			"Reserve with another claim in line was done; want it refused, so that the other has its turn")
		waiter.stillWaits()
		t.leaves()
		waiter.granted()
	}, "a process that goes on for ever with one claim lets nobody in"},
	{"ReserveTakesNoTokenThatWasDrawn", all(fair, reserves), func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		waiter := w.b.waits(w.claim(t.Key))
		waiter.leaves()
		w.wrongIf(t.reserves(waiter.Token-t.Token+1),
			"Reserve was done as far as token %d, which another claim has drawn", waiter.Token)
	}, "two claims must not have one token, though one of them has left: an operator would break the other"},
	{"ReserveForAClaimThatIsGone", reserves, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		t.leaves()
		w.wrongIf(t.reserves(t.Span+5), "Reserve for a claim that has left was done")
		w.b.empty(t.Key)
		next := w.b.holds(w.claim(t.Key))
		w.wrongIf(t.reserves(t.Span+5), "Reserve for a claim that has left was done, in another's")
		s, _ := next.standing()
		w.wrongIf(s.Token != next.Token || s.Span != next.Span,
			"the line says token %d, %d of them; want %d, %d, as before", s.Token, s.Span, next.Token, next.Span)
	}, "a call that arrives late must not bring in a claim that nobody holds any more, nor change another's"},
	{"ReserveStartsNoLease", reserves, timed(func(r *round, key string) {
		t := r.a.holds(r.short(key))
		if r.info.Lease == driver.PerClient {
			return
		}
		r.until(t.sent.Add(t.TTL / 2))
		t.reserves(t.Span + 5)
		t.expires()
		r.wrongIf(t.reserves(t.Span+9), "Reserve for a claim whose lease was over was done")
		r.b.empty(t.Key)
	}), "the core renews and counts the lease: a claim must end when its client believes it has"},
}

// reserves asks for span tokens. If the answer is no, nothing must have changed.
func (x *inLine) reserves(span int64) bool {
	w := x.at.w
	before, held := x.standing()
	done, err := x.at.Backend.(driver.Reserver).Reserve(w.ctx, x.Ticket, span)
	w.must("Reserve", err)
	after, holds := x.standing()
	switch {
	case !done && (holds != held || after.Span != before.Span):
		w.t.Errorf("Reserve says that it has done nothing, and the claim had %d tokens before and has %d: %+v",
			before.Span, after.Span, after)
	case after.Span < before.Span && held && holds, done && holds && after.Span < span:
		w.t.Errorf("after Reserve of %d tokens the claim has %d; it had %d", span, after.Span, before.Span)
	case holds && after.Token != before.Token:
		w.t.Errorf("Reserve changed the token from %d to %d", before.Token, after.Token)
	}
	return done
}
