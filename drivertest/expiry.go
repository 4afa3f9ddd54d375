package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var expiryLaws = []law{
	{
		name: "ExpiredClaimIsGone",
		why:  "a crashed holder must not keep its lock: its place is free when its lease has passed, by itself",
		check: func(w *world) {
			w.timed(func(r *round) {
				// Each question has a key of its own: the answer to one may purge.
				view := r.open()
				var ts [4]driver.Ticket
				i := clock(func() {
					for n := range ts {
						ts[n] = r.hold(view, r.short(r.key()))
					}
				})
				r.crash(view)
				r.until(r.over(i, ts[0].TTL))
				if r.conf.crash == nil {
					r.gone("Renew of an expired claim", r.renewed(view, ts[0]))
					_, err := view.Await(r.ctx, ts[1])
					r.gone("Await of an expired claim", err)
					r.gone("Leave of an expired claim", view.Leave(r.ctx, ts[2], driver.Exit{}))
				}
				r.empty(r.b, ts[3].Key)
				for _, t := range ts {
					r.hold(r.b, noWait(r.claim(t.Key)))
				}
			})
		},
	},
	{
		name: "ExpiredIsPurgedByEnter",
		why: "whoever comes after a crash comes first: an Enter that does not look for expired claims is " +
			"refused by a ghost",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				view := r.open()
				var t driver.Ticket
				i := clock(func() { t = r.hold(view, r.short(key)) })
				r.crash(view)
				r.until(r.over(i, t.TTL))
				next := r.hold(r.b, noWait(r.claim(key)))
				if n := len(r.line(r.b, key).Claims); n != 1 {
					r.t.Errorf("%d claims are in line; want the new holder alone", n)
				}
				r.leave(r.b, next, driver.Exit{})
			})
		},
	},
	{
		name: "ExpiredHolderLetsWaiterIn",
		when: fair,
		why:  "a crashed holder delays those behind it by its lease and no more, though nobody calls Leave",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				view := r.open()
				var t driver.Ticket
				i := clock(func() { t = r.hold(view, r.short(key)) })
				r.crash(view)
				next := r.waitBefore(i.sent.Add(t.Left), r.b, r.claim(key))
				r.granted(r.b, next)
				if early := time.Now(); early.Before(i.sent.Add(t.Left)) {
					r.t.Errorf("the next in line was granted %v before the lease ended", i.sent.Add(t.Left).Sub(early))
				}
			})
		},
	},
	{
		name: "ExpiredWaiterLetsOthersIn",
		when: fair,
		why: "a waiter that crashed at the head of the line must not block those behind it: a reader behind a " +
			"dead writer is granted beside the readers before it",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				r.hold(r.a, r.reader(key))
				view := r.open()
				var writer driver.Ticket
				i := clock(func() { writer = r.wait(view, r.short(key)) })
				r.crash(view)
				behind := r.waitBefore(i.sent.Add(writer.Left), r.b, r.reader(key))
				r.granted(r.b, behind)
			})
		},
	},
	{
		name: "AwaitDoesNotRenew",
		when: both(fair, func(i driver.Info) bool { return i.Lease == driver.PerClaim }),
		why: "the core renews and counts the lease: an Await that renewed would keep a claim in line that its " +
			"client believes to be dead",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				r.hold(r.b, r.claim(key))
				var t driver.Ticket
				i := clock(func() { t = r.wait(r.a, r.short(key)) })
				limit := r.over(i, t.TTL).Add(t.TTL)
				for range mostCalls {
					ctx, cancel := context.WithTimeout(r.ctx, t.TTL/4)
					var err error
					now := clock(func() { _, err = r.a.Await(ctx, t) })
					cancel()
					if driver.Gone(err) {
						return
					}
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						r.t.Fatalf("Await: %v", err)
					}
					if now.sent.After(limit) {
						r.t.Fatalf("a claim with a lease of %v is alive after %v of Await and no renewal", t.TTL, now.sent.Sub(i.sent))
					}
				}
				r.t.Fatalf("Await: %v", errSpin)
			})
		},
	},
	{
		name: "NoResurrection",
		why: "gone stays gone: a Renew that made the claim again would give the lock to somebody who was told " +
			"that it is lost, beside the next holder",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.claim(key))
			w.leave(w.a, t, driver.Exit{})
			w.resurrect(t, "a claim that left")

			t = w.hold(w.a, w.claim(key))
			if err := w.b.Break(w.ctx, key, t.Token, "enough"); err != nil {
				w.t.Fatalf("Break: %v", err)
			}
			w.resurrect(t, "a broken claim")

			never := driver.Ticket{Claim: w.claim(key), Token: t.Token + 1, Granted: true}
			w.resurrect(never, "a claim that never entered")
		},
	},
	{
		name: "NoResurrectionAfterExpiry",
		when: func(i driver.Info) bool { return i.Lease == driver.PerClaim },
		why: "a holder that wakes from a pause renews before it looks at the clock: if that brought the claim " +
			"back, it would hold beside its successor",
		check: func(w *world) {
			w.timed(func(r *round) {
				var t driver.Ticket
				i := clock(func() { t = r.hold(r.a, r.short(r.key())) })
				r.until(r.over(i, t.TTL))
				r.resurrect(t, "an expired claim")
			})
		},
	},
	{
		name: "NoResurrectionBesideASuccessor",
		why: "the same with the next holder in place: its lock must not be touched by the renewals of the one " +
			"before",
		check: func(w *world) {
			key := w.key()
			old := w.hold(w.a, w.claim(key))
			w.leave(w.a, old, driver.Exit{})
			next := w.hold(w.b, w.claim(key))
			w.gone("Renew of the claim before", w.renewed(w.a, old))
			w.gone("Leave of the claim before", w.a.Leave(w.ctx, old, driver.Exit{}))
			w.stillHolds(w.a, next)
			if n := len(w.line(w.a, key).Claims); n != 1 {
				w.t.Errorf("%d claims are in line; want the successor alone", n)
			}
		},
	},
}

// waitBefore joins a line in which somebody's lease ends at the given time, and
// must not be granted before.
func (r *round) waitBefore(end time.Time, b driver.Backend, c driver.Claim) driver.Ticket {
	r.t.Helper()
	var t driver.Ticket
	i := clock(func() { t = r.enter(b, c) })
	if t.Granted {
		r.inTime("an Enter", i.answered, end)
		r.t.Fatalf("a claim on %q was granted while the lease of one before it still ran", c.Key)
	}
	return t
}

// resurrect tries what must not bring a claim back.
func (w *world) resurrect(t driver.Ticket, what string) {
	w.t.Helper()
	w.gone("Renew of "+what, w.renewed(w.a, t))
	_, err := w.a.Await(w.ctx, t)
	w.gone("Await of "+what, err)
	w.empty(w.b, t.Key)
	w.leave(w.b, w.hold(w.b, noWait(w.claim(t.Key))), driver.Exit{})
	w.gone("Renew of "+what, w.renewed(w.a, t))
}
