package drivertest

import (
	"github.com/fencelock/fencelock/driver"
)

// A backend may always answer that it has done nothing. Then nothing must have changed.
var reserveLaws = []law{
	{
		name: "ReservedTokensAreTheClaims",
		can:  reserves,
		why: "the tokens are given to goroutines of the holder's process: nobody else may have them, and an " +
			"operator who saw one in a log ends the claim by it",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			if !w.reserve(w.a, t, t.Span+5) {
				return
			}
			if s, _ := w.standing(w.a, t); s.Token != t.Token || s.Span != t.Span+5 {
				w.t.Errorf("after Reserve the line says token %d, %d of them; want %d, %d", s.Token, s.Span, t.Token, t.Span+5)
			}
			w.refused(w.b, w.claim(t.Key))
			w.leave(w.a, t, driver.Exit{})
			next := w.hold(w.b, w.claim(t.Key))
			if next.Token < t.Token+t.Span+5 {
				w.t.Errorf("token %d was granted after %d of them from %d", next.Token, t.Span+5, t.Token)
			}
			if w.reserve(w.b, next, next.Span+5) {
				if err := w.a.Break(w.ctx, t.Key, next.Token+next.Span+4, "enough"); err != nil {
					w.t.Errorf("Break by the last token that was reserved: %v", err)
				}
				w.gone("Renew of the claim that was broken", w.renewed(w.b, next))
			}
		},
	},
	{
		name: "ReserveShortensNothing",
		can:  reserves,
		why:  "a call that arrives after a later one would have tokens granted again that were given already",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			if !w.reserve(w.a, t, t.Span+9) {
				return
			}
			w.reserve(w.a, t, t.Span+3)
			w.leave(w.a, t, driver.Exit{})
			if next := w.hold(w.b, w.claim(t.Key)); next.Token < t.Token+t.Span+9 {
				w.t.Errorf("token %d was granted after %d of them from %d", next.Token, t.Span+9, t.Token)
			}
		},
	},
	{
		name: "ReserveIsForWhoIsAlone",
		can:  reserves,
		when: fair,
		why:  "a process that goes on for ever with one claim lets nobody in",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			waiter := w.wait(w.b, w.claim(t.Key))
			if w.reserve(w.a, t, t.Span+5) {
				w.t.Errorf("Reserve with another claim in line was done; want it refused, so that the other has its turn")
			}
			w.stillWaits(w.b, waiter)
			w.leave(w.a, t, driver.Exit{})
			w.granted(w.b, waiter)
		},
	},
	{
		name: "ReserveTakesNoTokenThatWasDrawn",
		can:  reserves,
		when: fair,
		why:  "two claims must not have one token, though one of them has left: an operator would break the other",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			waiter := w.wait(w.b, w.claim(t.Key))
			w.leave(w.b, waiter, driver.Exit{})
			if w.reserve(w.a, t, waiter.Token-t.Token+1) {
				w.t.Errorf("Reserve was done as far as token %d, which another claim has drawn", waiter.Token)
			}
		},
	},
	{
		name: "ReserveForAClaimThatIsGone",
		can:  reserves,
		why:  "a call that arrives late must not bring in a claim that nobody holds any more, nor change another's",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			w.leave(w.a, t, driver.Exit{})
			if w.reserve(w.a, t, t.Span+5) {
				w.t.Errorf("Reserve for a claim that has left was done")
			}
			w.empty(w.b, t.Key)
			next := w.hold(w.b, w.claim(t.Key))
			if w.reserve(w.a, t, t.Span+5) {
				w.t.Errorf("Reserve for a claim that has left was done, in another's")
			}
			if s, _ := w.standing(w.b, next); s.Token != next.Token || s.Span != next.Span {
				w.t.Errorf("the line says token %d, %d of them; want %d, %d, as before", s.Token, s.Span, next.Token, next.Span)
			}
		},
	},
	{
		name: "ReserveStartsNoLease",
		can:  reserves,
		why: "the core renews and counts the lease: a claim must end when its client believes it to, and does " +
			"not come back",
		check: func(w *world) {
			w.timed(func(r *round) {
				var t driver.Ticket
				i := clock(func() { t = r.hold(r.a, r.short(r.key())) })
				if r.info.Lease == driver.PerClient {
					return
				}
				r.until(i.sent.Add(t.TTL / 2))
				r.reserve(r.a, t, t.Span+5)
				r.until(r.over(i, t.TTL))
				if r.reserve(r.a, t, t.Span+9) {
					r.t.Errorf("Reserve for a claim whose lease was over was done")
				}
				r.empty(r.b, t.Key)
			})
		},
	},
}

// reserve must leave everything as it is if it says so.
func (w *world) reserve(b driver.Backend, t driver.Ticket, span int64) bool {
	w.t.Helper()
	before, held := w.standing(b, t)
	done, err := b.(driver.Reserver).Reserve(w.ctx, t, span)
	if err != nil {
		w.t.Fatalf("Reserve on %q: %v", t.Key, err)
	}
	after, holds := w.standing(b, t)
	switch {
	case !done && (holds != held || after.Span != before.Span):
		w.t.Errorf("Reserve says that it has done nothing, and the claim had %d tokens before and has %d: %+v", before.Span, after.Span, after)
	case after.Span < before.Span && held && holds, done && holds && after.Span < span:
		w.t.Errorf("after Reserve of %d tokens the claim has %d; it had %d", span, after.Span, before.Span)
	case holds && after.Token != before.Token:
		w.t.Errorf("Reserve changed the token from %d to %d", before.Token, after.Token)
	}
	return done
}
