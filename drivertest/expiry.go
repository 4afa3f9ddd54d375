package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var expiryLaws = []law{
	{"ExpiredClaimIsGone", nil,
		"a crashed holder must not keep its lock: its place is free when its lease has passed, by itself",
		timed(func(r *round, _ string) {
			// Each question has a key of its own: the answer to one may purge.
			view := r.view()
			var ts [4]*inLine
			for n := range ts {
				ts[n] = view.holds(r.short(r.key()))
			}
			view.crashes()
			ts[3].expires()
			if r.conf.crash == nil {
				r.gone("Renew of an expired claim", ts[0].renew())
				r.gone("Await of an expired claim", ts[1].await())
				r.gone("Leave of an expired claim", ts[2].leave())
			}
			r.b.empty(ts[3].Key)
			for _, t := range ts {
				r.b.holds(noWait(r.claim(t.Key)))
			}
		})},
	{"ExpiredIsPurgedByEnter", nil,
		"whoever comes after a crash comes first: an Enter that does not look for expired claims is refused by a " +
			"ghost",
		timed(func(r *round, key string) {
			t := r.view().holds(r.short(key))
			t.crashes()
			t.expires()
			next := r.b.holds(noWait(r.claim(key)))
			r.b.counts(key, 1)
			next.leaves()
		})},
	{"ExpiredHolderLetsWaiterIn", fair,
		"a crashed holder delays those behind it by its lease and no more, though nobody calls Leave",
		timed(func(r *round, key string) {
			t := r.view().holds(r.short(key))
			t.crashes()
			r.b.waitsBefore(t.ends(), r.claim(key)).granted()
			early := time.Until(t.ends())
			r.wrongIf(early > 0, "the next in line was granted %v before the lease ended", early)
		})},
	{"ExpiredWaiterLetsOthersIn", fair,
		"a waiter that crashed at the head of the line must not block those behind it: a reader behind a dead " +
			"writer is granted beside the readers before it",
		timed(func(r *round, key string) {
			r.a.holds(r.reader(key))
			writer := r.view().waits(r.short(key))
			writer.crashes()
			r.b.waitsBefore(writer.ends(), r.reader(key)).granted()
		})},
	{"AwaitDoesNotRenew", all(fair, perClaim),
		"the core renews and counts the lease: an Await that renewed would keep a claim in line that its client " +
			"believes to be dead",
		timed(func(r *round, key string) {
			r.b.holds(r.claim(key))
			t := r.a.waits(r.short(key))
			limit := t.over().Add(t.TTL)
			for range mostCalls {
				ctx, cancel := context.WithTimeout(r.ctx, t.TTL/4)
				sent := time.Now()
				_, err := r.a.Await(ctx, t.Ticket)
				cancel()
				if driver.Gone(err) {
					return
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					r.t.Fatalf("Await: %v", err)
				}
				if sent.After(limit) {
					r.t.Fatalf("a lease of %v is alive after %v of Await and no renewal", t.TTL, sent.Sub(t.sent))
				}
			}
			r.t.Fatalf("Await: %v", errSpin)
		})},
	{"NoResurrection", nil,
		"gone stays gone: a Renew that made the claim again would give the lock to somebody who was told that it " +
			"is lost, beside the next holder",
		func(w *world, key string) {
			t := w.a.holds(w.claim(key))
			t.leaves()
			w.resurrect(t, "a claim that left")

			t = w.a.holds(w.claim(key))
			t.brokenBy(w.b, "enough")
			w.resurrect(t, "a broken claim")

			never := driver.Ticket{Claim: w.claim(key), Token: t.Token + 1, Granted: true}
			w.resurrect(w.a.with(never), "a claim that never entered")
		}},
	{"NoResurrectionAfterExpiry", perClaim,
		"a holder that wakes from a pause renews before it looks at the clock: if that brought the claim back, it " +
			"would hold beside its successor",
		timed(func(r *round, key string) {
			t := r.a.holds(r.short(key))
			t.expires()
			r.resurrect(t, "an expired claim")
		})},
	{"NoResurrectionBesideASuccessor", nil,
		"the same with the next holder in place: its lock must not be touched by the renewals of the one before",
		func(w *world, key string) {
			old := w.a.holds(w.claim(key))
			old.leaves()
			next := w.b.holds(w.claim(key))
			w.gone("Renew of the claim before", old.renew())
			w.gone("Leave of the claim before", old.leave())
			next.stillHolds()
			w.a.counts(key, 1)
		}},
}

// resurrect tries what must not bring a claim of w.a back.
func (w *world) resurrect(x *inLine, what string) {
	w.t.Helper()
	w.gone("Renew of "+what, x.renew())
	w.gone("Await of "+what, x.await())
	w.b.empty(x.Key)
	w.b.holds(noWait(w.claim(x.Key))).leaves()
	w.gone("Renew of "+what, x.renew())
}
