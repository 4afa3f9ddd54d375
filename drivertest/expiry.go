package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var expiryLaws = []law{
	{"ExpiredClaimIsGone", nil, timed(func(w *world, _ string) {
		// Each question has a key of its own: the answer to one may purge.
		dies := w.view()
		ts := w.line(4, func(*view) *inLine { return dies.holds(w.short(w.key())) })
		ts[3].crashes().expires()
		if w.conf.crash == nil {
			w.gone("Renew of an expired claim", ts[0].renew())
			w.gone("Await of an expired claim", ts[1].await())
			w.gone("Leave of an expired claim", ts[2].leave())
		}
		w.b.empty(ts[3].Key)
		for _, t := range ts {
			w.b.holds(noWait(w.claim(t.Key)))
		}
	}), "a crashed holder must not keep its lock: its place is free when its lease has passed, by itself"},
	{"ExpiredIsPurgedByEnter", nil, timed(func(w *world, key string) {
		w.view().holds(w.short(key)).crashes().expires()
		next := w.b.holds(noWait(w.claim(key)))
		w.b.counts(key, 1)
		next.leaves()
	}), "whoever comes first after a crash must not be refused by a claim that has expired"},
	{"ExpiredHolderLetsWaiterIn", fair, timed(func(w *world, key string) {
		t := w.view().holds(w.short(key)).crashes()
		w.b.waitsBefore(t.ends(), w.claim(key)).granted()
		w.notBefore(t.ends())
	}), "a crashed holder delays those behind it by its lease and no more, though nobody calls Leave"},
	{"ExpiredWaiterLetsOthersIn", fair, timed(func(w *world, key string) {
		w.a.holds(w.reader(key))
		writer := w.view().waits(w.short(key)).crashes()
		w.b.waitsBefore(writer.ends(), w.reader(key)).granted()
	}), "a crashed waiter must not block the line: a reader behind a dead writer joins the readers before it"},
	{"ExpiredWaiterThatRenewedLetsOthersIn", all(fair, perClaim), timed(func(w *world, key string) {
		w.a.holds(w.reader(key))
		writer, other := w.view().waits(w.short(key)), w.a.waits(w.claim(key))
		w.voidIf("Renew", writer.renew())
		other.renews()
		reader := w.b.waitsBefore(writer.ends(), w.reader(key))
		writer.crashes().expires()
		other.brokenBy(w.b, "enough")
		w.broken("Renew of a broken waiter", "enough", other.renew())
		reader.granted()
	}), "a store may keep a renewed lease elsewhere: it goes with its claim, and no other one does"},
	{"AwaitDoesNotRenew", all(fair, perClaim), timed(func(w *world, key string) {
		w.b.holds(w.claim(key))
		t := w.a.waits(w.short(key))
		limit := t.over().Add(t.TTL)
		for n := 0; n < mostCalls && time.Now().Before(limit); n++ {
			ctx, cancel := context.WithTimeout(w.ctx, t.TTL/4)
			_, err := w.a.Await(ctx, t.Ticket)
			cancel()
			if driver.Gone(err) {
				return
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				w.must("Await", err)
			}
		}
		if _, alive := t.standing(); alive {
			w.t.Fatalf("a lease of %v is alive after %v of Await and no renewal", t.TTL, time.Since(t.sent))
		}
		ctx, cancel := context.WithTimeout(w.ctx, aboutASecond)
		defer cancel()
		_, err := w.a.Await(ctx, t.Ticket) // a busy store has not answered within a quarter of a lease
		w.wrongIf(!driver.Gone(err), "Await answers %v for a claim that has expired", err)
	}), "the core counts the lease: an Await that renews keeps a claim in line that its client believes dead"},
	{"NoResurrection", nil, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).leaves()
		w.resurrect(t, "a claim that left")

		t = w.a.holds(w.claim(key)).brokenBy(w.b, "enough")
		w.resurrect(t, "a broken claim")

		never := driver.Ticket{Claim: w.claim(key), Token: t.Token + 1, Granted: true}
		w.resurrect(w.a.with(never), "a claim that never entered")
	}, "gone stays gone: a Renew that brings a claim back makes two holders, one of whom was told of the loss"},
	{"NoResurrectionAfterExpiry", perClaim, timed(func(w *world, key string) {
		w.resurrect(w.a.holds(w.short(key)).expires(), "an expired claim")
	}), "a holder may renew late, after a pause: brought back, it would hold beside its successor"},
	{"NoResurrectionBesideASuccessor", nil, func(w *world, key string) {
		old := w.a.holds(w.claim(key)).leaves()
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
