package drivertest

import (
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var leaseLaws = []law{
	{"EnterRenews", nil, timed(func(w *world, key string) {
		c := w.short(key)
		w.enterRenews(w.a.holds(c), c)
	}), "the holder counts from its repeated Enter: a store that does not ends the lease under the holder"},
	{"EnterRenewsWaiters", fair, timed(func(w *world, key string) {
		w.b.holds(w.claim(key))
		c := w.short(key)
		w.enterRenews(w.a.waits(c), noWait(c))
	}), "a waiter whose repeated Enter does not renew it loses its place while it believes to be in line"},
	{"WaitTTLIsForTheWait", all(perClaim, fair), timed(func(w *world, key string) {
		w.b.holds(w.claim(key))
		var waiting []*inLine
		for range 2 { // a store may treat the first to wait behind a holder in a way of its own
			c := waitingFor(w.claim(key), w.lease)
			t := w.a.waits(c)
			w.wrongIf(t.TTL != w.lease || t.Left > w.lease,
				"a claim that waits with a lease of %v got one of %v, with %v left", w.lease, t.TTL, t.Left)
			t.Claim = c
			waiting = append(waiting, t)
		}
		w.until(waiting[0].sent.Add(w.lease * 8 / 10))
		for i, t := range waiting {
			again := w.a.waits(t.Claim)
			w.inTime("the repeat", again.answered, t.ends())
			same(w, "the lease of the repeated Enter", again.TTL, w.lease)
			waiting[i] = again
		}
		w.until(waiting[0].sent.Add(w.lease * 7 / 10))
		for _, t := range waiting {
			t.stillLives()
		}
		waiting[1].expires()
		w.a.counts(key, 1)
	}), "a waiter that dies keeps its place until its lease ends, so that lease is short also for long work"},
	{"GrantHasTheLeaseOfItsTicket", perClaim, timed(func(w *world, key string) {
		shared := w.key()
		w.b.holds(w.reader(shared))
		left := w.key() // a line that remembers somebody who has left
		w.b.entomb(w.claim(left))
		var granted []*inLine
		for _, c := range []driver.Claim{w.claim(key), w.reader(shared), w.claim(left)} {
			c = waitingFor(c, w.lease)
			if t := w.a.holds(c); w.isLeaseOf(c, t) {
				granted = append(granted, t)
			}
		}
		w.until(time.Now().Add(w.lease + w.conf.lag))
		for _, t := range granted {
			t.stillThere()
		}
	}), "the short lease of a waiter must not end what is granted with a long one: nobody renews it in time"},
	{"RepeatedGrantHasTheLeaseOfItsTicket", all(perClaim, fair), timed(func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		c := waitingFor(w.claim(key), w.lease)
		t := w.b.waits(c)
		holder.leaves()
		again, err := w.b.try(c)
		w.inTime("the repeat", again.answered, t.ends())
		w.must("the repeated Enter", err)
		w.wrongIf(!again.Granted, "the repeated Enter of a claim granted meanwhile answered that it waits")
		if w.isLeaseOf(c, again) {
			w.until(again.answered.Add(w.lease + w.conf.lag))
			again.stillThere()
		}
	}), "a repeated Enter may find that its claim holds the lock: its ticket says which lease it has started"},
	{"LeftFromSending", nil, timed(func(w *world, key string) {
		t := w.a.holds(w.short(key))
		w.wrongIf(t.Left > t.TTL, "a fresh lease of %v has %v left", t.TTL, t.Left)
		took := t.answered.Sub(t.sent)
		shortest := t.TTL - took - t.TTL/10
		w.wrongIf(!w.info.SharedLease && t.Left < shortest,
			"a fresh lease of %v has only %v left after %v", t.TTL, t.Left, took)
		w.until(t.sent.Add(t.Left * 9 / 10))
		t.stillLives()
	}), "the holder counts Left from the sending: a store that keeps less ends the lease under the holder"},
	{"GrantedTTLIsKept", nil, timed(func(w *world, key string) {
		c := w.short(key)
		t := w.a.holds(c)
		w.wrongIf(t.TTL < w.info.MinTTL || !w.info.SharedLease && t.TTL > c.TTL+time.Second,
			"asked for a lease of %v, got %v", c.TTL, t.TTL)
		w.until(t.sent.Add(t.TTL / 2))
		end := t.ends()
		err := t.renew()
		w.inTime("the renewal", time.Now(), end)
		w.must("Renew", err)
		w.until(t.sent.Add(t.TTL * 9 / 10))
		t.stillLives()
	}), "a store may grant another lease if it says so: clients renew and give up by what the ticket says"},
	{"RenewKeepsClaimsAlive", nil, timed(func(w *world, key string) {
		held := w.a.holds(w.short(key))
		line := []*inLine{held}
		if w.info.Fair {
			line = append(line, w.a.waitsBefore(held.ends(), w.short(key)))
		}
		for range 5 {
			w.until(held.sent.Add(held.TTL * 6 / 10))
			end := held.ends()
			errs := w.a.renew(line...)
			w.inTime("a renewal", time.Now(), end)
			w.must("Renew", errors.Join(errs...))
		}
		seen := w.b.line(key).Claims
		w.inTime("the look", time.Now(), held.ends())
		same(w, "the claims in line, all renewed in time", len(seen), len(line))
	}), "renewal is for work that takes longer than the lease, and a waiter may wait longer than its lease too"},
	{"RenewalBesideAnEnterCounts", all(fair, perClaim), timed(func(w *world, _ string) {
		const n = races / 4
		held, errs := make([]*inLine, n), make([]error, n)
		for i := range held {
			held[i] = w.a.holds(w.short(w.key()))
		}
		end := held[n-1].ends()
		w.until(end.Add(-w.lease * 4 / 10))
		w.each(n, func(i int) {
			renews := func() { errs[i] = held[i].renew() }
			together(renews, func() { _, _ = w.b.try(w.claim(held[i].Key)) })
		})
		w.until(end.Add(w.lease / 10))
		var late void
		inTime := 0
		for i, t := range held {
			v := attempt(func() {
				w.voidIf("Renew", errs[i])
				t.stillLives()
			})
			if v == (void{}) {
				inTime++
			} else {
				late = v
			}
		}
		if inTime < n/2 { // on a slow machine some come too late each time
			panic(late)
		}
	}), "an Enter that has read the line before a renewal and writes it afterwards must not take the renewal back"},
	{"RenewNeverShortens", nil, timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key)) // a long lease
		short := *t
		short.TTL = w.lease
		short.renews()
		short.expires()
		t.stillThere()
	}), "a renewal that was sent early and arrives late must not cut what a later one has promised"},
	{"RenewTakesTheTicketsTTL", perClaim, timed(func(w *world, key string) {
		t := w.a.holds(w.short(key))
		long := *t
		long.TTL = w.longest()
		w.voidIf("Renew", long.renew())
		w.inTime("the renewal", long.answered, t.ends())
		w.until(long.answered.Add(t.TTL + w.conf.lag))
		t.stillThere()
	}), "a fixed lease waits in line with a short lease and takes its full length on the grant, by a renewal"},
	{"RenewAnswersForEachTicket", nil, renewsAllBut(10, 0, 3, 4, 9),
		"one call renews many leases: an answer for the wrong ticket ends a good lease and keeps a lost one"},
	{"RenewTakesAThousandTickets", nil, renewsAllBut(1000, 500),
		"a process may hold very many locks, and they are renewed by the thousand"},
}

// renewsAllBut renews n claims in one call. Those that left must be gone.
func renewsAllBut(n int, left ...int) func(w *world, _ string) {
	return func(w *world, _ string) {
		ts := w.enterMany(n, func() driver.Claim { return w.claim(w.key()) })
		for _, t := range ts {
			w.wrongIf(!t.Granted, "a claim alone in line is not granted")
		}
		for _, i := range left {
			ts[i].leaves()
		}
		for i, err := range w.a.renew(ts...) {
			if slices.Contains(left, i) {
				w.gone("Renew of a claim that left", err)
			} else {
				w.must("Renew of one of many", err)
			}
		}
	}
}

// enterRenews repeats the Enter of a claim late in its lease: it must live for a whole lease more.
func (w *world) enterRenews(first *inLine, again driver.Claim) {
	w.until(first.sent.Add(first.TTL * 8 / 10))
	second, err := w.a.try(again)
	w.inTime("the repeat", second.answered, first.ends())
	w.must("the repeated Enter", err)
	w.sound(again, second.Ticket)
	w.wrongIf(second.Granted != first.Granted || second.Token != first.Token,
		"the repeated Enter answered %+v; want the claim as before, %+v", second.Ticket, first.Ticket)
	w.until(first.answered.Add(first.TTL * 3 / 2))
	second.stillLives()
}

// isLeaseOf holds the lease of t, a grant of c, to TTL or WaitTTL, and reports whether it is TTL.
func (w *world) isLeaseOf(c driver.Claim, t *inLine) bool {
	w.wrongIf(t.TTL != c.TTL && t.TTL != c.WaitTTL, "a grant has a lease of %v; want %v or %v", t.TTL, c.TTL, c.WaitTTL)
	return t.TTL == c.TTL
}
