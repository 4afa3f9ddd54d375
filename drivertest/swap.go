package drivertest

import (
	"github.com/fencelock/fencelock/driver"
)

// A backend may always answer that it has done nothing. Then nothing must have changed.
var swapLaws = []law{
	{
		name: "SwapIsLeaveAndEnter",
		can:  swaps,
		why:  "the claim that is granted takes the lock over: nobody may be between the two, and only one of them may hold it",
		check: func(w *world) {
			old := w.hold(w.a, w.claim(w.key()))
			c := w.claim(old.Key)
			next, done := w.swap(w.a, old, c)
			if !done {
				return
			}
			w.sound(c, next)
			if !next.Granted || next.Token < old.Token+old.Span {
				w.t.Errorf("Swap of the claim with the tokens from %d, %d of them, answered %+v; want a grant with a larger one", old.Token, old.Span, next)
			}
			w.gone("Renew of the claim that was replaced", w.renewed(w.a, old))
			w.gone("Leave of the claim that was replaced", w.a.Leave(w.ctx, old, driver.Exit{}))
			w.stillHolds(w.a, next)
			w.refused(w.b, w.claim(old.Key))
			w.leave(w.a, next, driver.Exit{})
			after := w.hold(w.b, w.claim(old.Key))
			if after.Token < next.Token+next.Span {
				w.t.Errorf("token %d was granted after %d, %d of them", after.Token, next.Token, next.Span)
			}
		},
	},
	{
		name: "EnterFindsWhatASwapHasEntered",
		can:  swaps,
		why:  "the answer to a Swap may be lost: its caller enters again, and must not stand in line behind itself",
		check: func(w *world) {
			old := w.hold(w.a, w.claim(w.key()))
			c := w.claim(old.Key)
			next, done := w.swap(w.a, old, c)
			if !done {
				return
			}
			if again := w.hold(w.a, c); again.Token != next.Token {
				w.t.Errorf("Enter after Swap answered token %d; want %d, of the claim that is there", again.Token, next.Token)
			}
		},
	},
	{
		name: "SwapWaitsBehindOthers",
		can:  swaps,
		when: fair,
		why:  "a process that goes on for ever by putting one claim in the place of another lets nobody in",
		check: func(w *world) {
			old := w.hold(w.a, w.claim(w.key()))
			waiter := w.wait(w.b, w.claim(old.Key))
			c := w.claim(old.Key)
			if _, done := w.swap(w.a, old, c); done {
				w.t.Fatalf("Swap with another claim in line was done; want it to wait for its turn as an Enter does")
			}
			w.stillWaits(w.b, waiter)
			w.leave(w.a, old, driver.Exit{})
			w.granted(w.b, waiter)
			w.wait(w.a, c) // and not found: it was not entered before
		},
	},
	{
		name: "SwapOfAClaimThatIsGone",
		can:  swaps,
		why:  "a Swap that arrives late would bring in a claim that nobody waits for any more",
		check: func(w *world) {
			old := w.hold(w.a, w.claim(w.key()))
			w.leave(w.a, old, driver.Exit{})
			if _, done := w.swap(w.a, old, w.claim(old.Key)); done {
				w.t.Errorf("Swap of a claim that has left was done")
			}
			w.empty(w.b, old.Key)
			next := w.hold(w.b, w.claim(old.Key))
			if _, done := w.swap(w.a, old, w.claim(old.Key)); done {
				w.t.Errorf("Swap of a claim that has left was done, in the place of another's")
			}
			w.stillHolds(w.b, next)
		},
	},
	{
		name: "SwapOfAClaimThatHasExpired",
		can:  swaps,
		why:  "whoever was away for longer than a lease holds nothing that another claim could take over",
		check: func(w *world) {
			w.timed(func(r *round) {
				var old driver.Ticket
				i := clock(func() { old = r.hold(r.a, r.short(r.key())) })
				if r.info.Lease == driver.PerClient {
					return
				}
				r.until(r.over(i, old.TTL))
				if _, done := r.swap(r.a, old, r.claim(old.Key)); done {
					r.t.Errorf("Swap of a claim whose lease was over was done")
				}
				r.empty(r.b, old.Key)
			})
		},
	},
}

// swap must leave everything as it is if it says so.
func (w *world) swap(b driver.Backend, old driver.Ticket, c driver.Claim) (driver.Ticket, bool) {
	w.t.Helper()
	_, held := w.standing(b, old)
	next, done, err := b.(driver.Swapper).Swap(w.ctx, old, c)
	if err != nil {
		w.t.Fatalf("Swap on %q: %v", c.Key, err)
	}
	if !done {
		if held {
			w.stillHolds(b, old)
		}
		w.gone("Renew of a claim that was not swapped in", w.renewed(b, driver.Ticket{Claim: c, Token: old.Token + 1}))
	}
	return next, done
}
