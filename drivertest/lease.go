package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

var leaseLaws = []law{
	{
		name: "EnterRenews",
		why: "applied at 0, answer lost, repeated at 0.8 of the lease: the holder counts from the repeat, so " +
			"the store must too, or it ends the lease under the holder",
		check: func(w *world) {
			w.timed(func(r *round) {
				c := r.short(r.key())
				var first, second driver.Ticket
				i := clock(func() { first = r.hold(r.a, c) })
				r.until(i.sent.Add(first.TTL * 8 / 10))
				again := clock(func() { second = r.hold(r.a, c) })
				r.inTime("the repeat", again.answered, i.sent.Add(first.Left))
				if second.Token != first.Token {
					r.t.Errorf("the repeated Enter has token %d; want %d", second.Token, first.Token)
				}
				r.until(i.answered.Add(first.TTL * 3 / 2))
				r.alive(second, again.sent)
			})
		},
	},
	{
		name: "EnterRenewsWaiters",
		when: fair,
		why:  "a waiter whose repeated Enter does not renew it loses its place while it believes to be in line",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				r.hold(r.b, r.claim(key))
				c := r.short(key)
				var first, second driver.Ticket
				i := clock(func() { first = r.wait(r.a, c) })
				r.until(i.sent.Add(first.TTL * 8 / 10))
				var err error
				again := clock(func() { second, err = r.try(r.a, noWait(c)) })
				r.inTime("the repeat", again.answered, i.sent.Add(first.Left))
				if err != nil || second.Granted || second.Token != first.Token {
					r.t.Fatalf("the repeated Enter answered %+v and error %v; want the waiting claim with token %d", second, err, first.Token)
				}
				r.until(i.answered.Add(first.TTL * 3 / 2))
				r.alive(second, again.sent)
			})
		},
	},
	{
		name: "LeftFromSending",
		why: "the holder counts Left from the moment it sent the call: a store that promises more than it " +
			"keeps ends the lease under the holder",
		check: func(w *world) {
			w.timed(func(r *round) {
				c := r.short(r.key())
				var t driver.Ticket
				i := clock(func() { t = r.hold(r.a, c) })
				if t.Left > t.TTL {
					r.t.Errorf("a fresh lease of %v has %v left", t.TTL, t.Left)
				}
				took := i.answered.Sub(i.sent)
				if shortest := t.TTL - took - t.TTL/10; r.info.Lease == driver.PerClaim && t.Left < shortest {
					r.t.Errorf("a fresh lease of %v has only %v left after %v", t.TTL, t.Left, took)
				}
				r.until(i.sent.Add(t.Left * 9 / 10))
				r.alive(t, i.sent)
			})
		},
	},
	{
		name: "GrantedTTLIsKept",
		why: "a store may grant another lease than was asked for, but then it must say so: clients renew and " +
			"give up by what the ticket says",
		check: func(w *world) {
			w.timed(func(r *round) {
				c := r.short(r.key())
				var t driver.Ticket
				i := clock(func() { t = r.hold(r.a, c) })
				if t.TTL < r.info.MinTTL || r.info.Lease == driver.PerClaim && t.TTL > c.TTL+time.Second {
					r.t.Errorf("asked for a lease of %v, got %v", c.TTL, t.TTL)
				}
				r.until(i.sent.Add(t.TTL / 2))
				var err error
				again := clock(func() { err = r.renewed(r.a, t) })
				r.inTime("the renewal", again.answered, i.sent.Add(t.Left))
				if err != nil {
					r.t.Fatalf("Renew: %v", err)
				}
				r.until(again.sent.Add(t.TTL * 9 / 10))
				t.Left = t.TTL
				r.alive(t, again.sent)
			})
		},
	},
	{
		name: "RenewKeepsClaimsAlive",
		why: "work that takes longer than the lease is what renewal is for, and a waiter may wait longer than " +
			"its lease too",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				var held, waits driver.Ticket
				i := clock(func() { held = r.hold(r.a, r.short(key)) })
				ts := []driver.Ticket{held}
				if r.info.Fair {
					waits = r.waitBefore(i.sent.Add(held.Left), r.a, r.short(key))
					ts = append(ts, waits)
				}
				ends, sent := i.sent.Add(held.Left), i.sent
				for range 5 {
					r.until(sent.Add(held.TTL * 6 / 10))
					var errs []error
					again := clock(func() { errs = r.a.Renew(r.ctx, ts) })
					r.inTime("a renewal", again.answered, ends)
					for n, err := range errs {
						if err != nil {
							r.t.Fatalf("Renew of claim %d: %v", n, err)
						}
					}
					sent, ends = again.sent, again.sent.Add(held.TTL)
				}
				line := r.line(r.b, key)
				r.inTime("the look", time.Now(), ends)
				if len(line.Claims) != len(ts) {
					r.t.Errorf("%d claims are in line; want %d: all were renewed in time", len(line.Claims), len(ts))
				}
			})
		},
	},
	{
		name: "RenewNeverShortens",
		why:  "a renewal that was sent early and arrives late must not cut what a later one has promised",
		check: func(w *world) {
			w.timed(func(r *round) {
				t := r.hold(r.a, r.claim(r.key())) // a long lease
				short := t
				short.TTL = r.lease
				var err error
				i := clock(func() { err = r.renewed(r.a, short) })
				if err != nil {
					r.t.Fatalf("Renew: %v", err)
				}
				r.until(r.over(i, r.lease))
				if _, ok := r.standing(r.b, t); !ok {
					r.t.Errorf("a claim with a lease of %v is gone after a renewal with %v", t.TTL, r.lease)
				}
			})
		},
	},
	{
		name: "RenewTakesTheTicketsTTL",
		when: func(i driver.Info) bool { return i.Lease == driver.PerClaim },
		why:  "a fixed lease waits in line with a short lease and takes its full length on the grant, by a renewal",
		check: func(w *world) {
			w.timed(func(r *round) {
				var t driver.Ticket
				i := clock(func() { t = r.hold(r.a, r.short(r.key())) })
				long := t
				long.TTL = min(longLease, r.info.MaxTTL)
				again := clock(func() {
					if err := r.renewed(r.a, long); err != nil {
						panic(void{"the renewal came too late: " + err.Error()})
					}
				})
				r.inTime("the renewal", again.answered, i.sent.Add(t.Left))
				r.until(r.over(again, t.TTL))
				if _, ok := r.standing(r.b, t); !ok {
					r.t.Errorf("a claim that was renewed for %v is gone after %v", long.TTL, t.TTL)
				}
			})
		},
	},
	{
		name: "RenewAnswersForEachTicket",
		why: "many leases are renewed in one call: an answer for the wrong ticket ends a good lease and keeps " +
			"a lost one",
		check: func(w *world) {
			var ts []driver.Ticket
			lost := map[int]bool{0: true, 3: true, 4: true, 9: true}
			for i := range 10 {
				ts = append(ts, w.hold(w.a, w.claim(w.key())))
				if lost[i] {
					w.leave(w.a, ts[i], driver.Exit{})
				}
			}
			errs := w.a.Renew(w.ctx, ts)
			if len(errs) != len(ts) {
				w.t.Fatalf("Renew of %d tickets answered %d errors", len(ts), len(errs))
			}
			for i, err := range errs {
				if lost[i] {
					w.gone("Renew of a claim that left", err)
				} else if err != nil {
					w.t.Errorf("Renew of claim %d: %v", i, err)
				}
			}
		},
	},
	{
		name: "RenewTakesAThousandTickets",
		why:  "a process may hold very many locks, and they are renewed by the thousand",
		check: func(w *world) {
			const n = 1000
			ts := w.enterMany(n, func(int) driver.Claim { return w.claim(w.key()) })
			w.leave(w.a, ts[n/2], driver.Exit{})
			errs := w.a.Renew(w.ctx, ts)
			if len(errs) != n {
				w.t.Fatalf("Renew of %d tickets answered %d errors", n, len(errs))
			}
			for i, err := range errs {
				if i == n/2 {
					w.gone("Renew of a claim that left", err)
				} else if err != nil {
					w.t.Fatalf("Renew of claim %d: %v", i, err)
				}
			}
		},
	},
}

// alive must find the claim of t in line, as long as Left, counted from sent,
// proves that it has to be.
func (r *round) alive(t driver.Ticket, sent time.Time) {
	r.t.Helper()
	var ok bool
	look := clock(func() { _, ok = r.standing(r.b, t) })
	r.inTime("the look", look.answered, sent.Add(t.Left))
	if !ok {
		r.t.Errorf("a claim is gone %v after its lease was promised for %v", look.answered.Sub(sent), t.Left)
	}
}
