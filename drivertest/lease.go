package drivertest

import (
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var leaseLaws = []law{
	{"EnterRenews", nil, timed(func(r *round, key string) {
		c := r.short(key)
		first := r.a.holds(c)
		r.until(first.sent.Add(first.TTL * 8 / 10))
		second := r.a.holds(c)
		r.inTime("the repeat", second.answered, first.ends())
		same(r.world, "the token of the repeated Enter", second.Token, first.Token)
		r.until(first.answered.Add(first.TTL * 3 / 2))
		second.stillLives()
	}), "the holder counts from its repeated Enter: a store that does not ends the lease under the holder"},
	{"EnterRenewsWaiters", fair, timed(func(r *round, key string) {
		r.b.holds(r.claim(key))
		c := r.short(key)
		first := r.a.waits(c)
		r.until(first.sent.Add(first.TTL * 8 / 10))
		second, err := r.a.try(noWait(c))
		r.inTime("the repeat", second.answered, first.ends())
		if err != nil || second.Granted || second.Token != first.Token {
			r.t.Fatalf("the repeated Enter answered %+v and error %v; want the waiting claim with token %d",
				second.Ticket, err, first.Token)
		}
		r.until(first.answered.Add(first.TTL * 3 / 2))
		second.stillLives()
	}), "a waiter whose repeated Enter does not renew it loses its place while it believes to be in line"},
	{"LeftFromSending", nil, timed(func(r *round, key string) {
		t := r.a.holds(r.short(key))
		r.wrongIf(t.Left > t.TTL, "a fresh lease of %v has %v left", t.TTL, t.Left)
		took := t.answered.Sub(t.sent)
		shortest := t.TTL - took - t.TTL/10
		r.wrongIf(r.info.Lease == driver.PerClaim && t.Left < shortest,
			"a fresh lease of %v has only %v left after %v", t.TTL, t.Left, took)
		r.until(t.sent.Add(t.Left * 9 / 10))
		t.stillLives()
	}), "the holder counts Left from the sending: a store that keeps less ends the lease under the holder"},
	{"GrantedTTLIsKept", nil, timed(func(r *round, key string) {
		c := r.short(key)
		t := r.a.holds(c)
		r.wrongIf(t.TTL < r.info.MinTTL || r.info.Lease == driver.PerClaim && t.TTL > c.TTL+time.Second,
			"asked for a lease of %v, got %v", c.TTL, t.TTL)
		r.until(t.sent.Add(t.TTL / 2))
		end := t.ends()
		err := t.renew()
		r.inTime("the renewal", time.Now(), end)
		r.must("Renew", err)
		r.until(t.sent.Add(t.TTL * 9 / 10))
		t.stillLives()
	}), "a store may grant another lease if it says so: clients renew and give up by what the ticket says"},
	{"RenewKeepsClaimsAlive", nil, timed(func(r *round, key string) {
		held := r.a.holds(r.short(key))
		line := []*inLine{held}
		if r.info.Fair {
			line = append(line, r.a.waitsBefore(held.ends(), r.short(key)))
		}
		for range 5 {
			r.until(held.sent.Add(held.TTL * 6 / 10))
			end := held.ends()
			errs := r.a.renew(line...)
			r.inTime("a renewal", time.Now(), end)
			r.must("Renew", errors.Join(errs...))
		}
		seen := r.b.line(key).Claims
		r.inTime("the look", time.Now(), held.ends())
		same(r.world, "the claims in line, all renewed in time", len(seen), len(line))
	}), "renewal is for work that takes longer than the lease, and a waiter may wait longer than its lease too"},
	{"RenewNeverShortens", nil, timed(func(r *round, key string) {
		t := r.a.holds(r.claim(key)) // a long lease
		short := *t
		short.TTL = r.lease
		short.renews()
		short.expires()
		t.stillThere()
	}), "a renewal that was sent early and arrives late must not cut what a later one has promised"},
	{"RenewTakesTheTicketsTTL", perClaim, timed(func(r *round, key string) {
		t := r.a.holds(r.short(key))
		long := *t
		long.TTL = r.longest()
		r.voidIf("Renew", long.renew())
		r.inTime("the renewal", long.answered, t.ends())
		r.until(r.over(long.interval, t.TTL))
		t.stillThere()
	}), "a fixed lease waits in line with a short lease and takes its full length on the grant, by a renewal"},
	{"RenewAnswersForEachTicket", nil, func(w *world, _ string) {
		var ts []*inLine
		lost := map[int]bool{0: true, 3: true, 4: true, 9: true}
		for i := range 10 {
			ts = append(ts, w.a.holds(w.claim(w.key())))
			if lost[i] {
				ts[i].leaves()
			}
		}
		w.renewedBut(ts, func(i int) bool { return lost[i] })
	}, "one call renews many leases: an answer for the wrong ticket ends a good lease and keeps a lost one"},
	{"RenewTakesAThousandTickets", nil, func(w *world, _ string) {
		const n = 1000
		ts := w.enterMany(n, func() driver.Claim { return w.claim(w.key()) })
		ts[n/2].leaves()
		w.renewedBut(ts, func(i int) bool { return i == n/2 })
	}, "a process may hold very many locks, and they are renewed by the thousand"},
}

// renewedBut renews all claims in one call. Those that left must be gone.
func (w *world) renewedBut(xs []*inLine, left func(i int) bool) {
	for i, err := range w.a.renew(xs...) {
		if left(i) {
			w.gone("Renew of a claim that left", err)
		} else {
			w.must("Renew of one of many", err)
		}
	}
}
