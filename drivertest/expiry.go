package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var expiryLaws = []law{
	{"ExpiredClaimIsGone", nil, timed(func(r *round, _ string) {
		// Each question has a key of its own: the answer to one may purge.
		view := r.view()
		var ts [4]*inLine
		for n := range ts {
			ts[n] = view.holds(r.short(r.key()))
		}
		ts[3].crashes().expires()
		if r.conf.crash == nil {
			r.gone("Renew of an expired claim", ts[0].renew())
			r.gone("Await of an expired claim", ts[1].await())
			r.gone("Leave of an expired claim", ts[2].leave())
		}
		r.b.empty(ts[3].Key)
		for _, t := range ts {
			r.b.holds(noWait(r.claim(t.Key)))
		}
	}), "a crashed holder must not keep its lock: its place is free when its lease has passed, by itself"},
	{"ExpiredIsPurgedByEnter", nil, timed(func(r *round, key string) {
		r.view().holds(r.short(key)).crashes().expires()
		next := r.b.holds(noWait(r.claim(key)))
		r.b.counts(key, 1)
		next.leaves()
	}), "whoever comes first after a crash must not be refused by a claim that has expired"},
	{"ExpiredHolderLetsWaiterIn", fair, timed(func(r *round, key string) {
		t := r.view().holds(r.short(key)).crashes()
		r.b.waitsBefore(t.ends(), r.claim(key)).granted()
		r.notBefore(t.ends())
	}), "a crashed holder delays those behind it by its lease and no more, though nobody calls Leave"},
	{"ExpiredWaiterLetsOthersIn", fair, timed(func(r *round, key string) {
		r.a.holds(r.reader(key))
		writer := r.view().waits(r.short(key)).crashes()
		r.b.waitsBefore(writer.ends(), r.reader(key)).granted()
	}), "a crashed waiter must not block the line: a reader behind a dead writer joins the readers before it"},
	{"AwaitDoesNotRenew", all(fair, perClaim), timed(func(r *round, key string) {
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
			if !errors.Is(err, context.DeadlineExceeded) {
				r.must("Await", err)
			}
			if sent.After(limit) {
				r.t.Fatalf("a lease of %v is alive after %v of Await and no renewal", t.TTL, sent.Sub(t.sent))
			}
		}
		r.t.Fatalf("Await: %v", errSpin)
	}), "the core counts the lease: an Await that renews keeps a claim in line that its client believes dead"},
	{"NoResurrection", nil, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		t.leaves()
		w.resurrect(t, "a claim that left")

		t = w.a.holds(w.claim(key))
		t.brokenBy(w.b, "enough")
		w.resurrect(t, "a broken claim")

		never := driver.Ticket{Claim: w.claim(key), Token: t.Token + 1, Granted: true}
		w.resurrect(w.a.with(never), "a claim that never entered")
	}, "gone stays gone: a Renew that brings a claim back makes two holders, one of whom was told of the loss"},
	{"NoResurrectionAfterExpiry", perClaim, timed(func(r *round, key string) {
		r.resurrect(r.a.holds(r.short(key)).expires(), "an expired claim")
	}), "a holder may renew late, after a pause: brought back, it would hold beside its successor"},
	{"NoResurrectionBesideASuccessor", nil, func(w *world, key string) {
		old := w.a.holds(w.claim(key))
		old.leaves()
		next := w.b.holds(w.claim(key))
		w.gone("Renew of the claim before", old.renew())
		w.gone("Leave of the claim before", old.leave())
		next.stillHolds()
		w.a.counts(key, 1)
	}, "the same with the next holder in place: its lock must not be touched by the renewals of the one before"},
}

// resurrect tries what must not bring a claim of w.a back.
func (w *world) resurrect(x *inLine, what string) {
	w.gone("Renew of "+what, x.renew())
	w.gone("Await of "+what, x.await())
	w.b.empty(x.Key)
	w.b.holds(noWait(w.claim(x.Key))).leaves()
	w.gone("Renew of "+what, x.renew())
}
