package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

var leaveLaws = []law{
	{
		name: "LeaveFreesTheLock",
		why:  "a lock that is released is free at once, for everybody",
		check: func(w *world) {
			key := w.key()
			w.leave(w.a, w.hold(w.a, w.claim(key)), driver.Exit{})
			w.empty(w.b, key)
			w.hold(w.b, noWait(w.claim(key)))
		},
	},
	{
		name: "LeaveNeedsTheId",
		why:  "only the id is the right to leave: by key or by token, one holder could end another's lock",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			stranger := t
			stranger.ID = newID()
			w.gone("Leave with another id", w.b.Leave(w.ctx, stranger, driver.Exit{}))
			stranger.ID = driver.ShortID(t.ID)
			w.gone("Leave with the id that is shown to people", w.b.Leave(w.ctx, stranger, driver.Exit{}))
			w.stillHolds(w.a, t)
			w.refused(w.b, w.claim(t.Key))
		},
	},
	{
		name: "SecondLeaveIsGone",
		why:  "a claim that is not in line cannot leave, and its client should know",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			w.leave(w.a, t, driver.Exit{})
			w.gone("the second Leave", w.a.Leave(w.ctx, t, driver.Exit{}))
			w.gone("Renew after Leave", w.renewed(w.a, t))
			_, err := w.a.Await(w.ctx, t)
			w.gone("Await after Leave", err)
		},
	},
	{
		name: "LeaveDoesNotEndTheSuccessor",
		why:  "A's lease ends, B acquires, A releases: if that freed B's lock, C would hold beside B",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				var old driver.Ticket
				i := clock(func() { old = r.hold(r.a, r.short(key)) })
				if r.info.Lease == driver.PerClient {
					r.leave(r.a, old, driver.Exit{})
				} else {
					r.until(r.over(i, old.TTL))
				}
				next := r.hold(r.b, r.claim(key))
				r.gone("Leave after the lease", r.a.Leave(r.ctx, old, driver.Exit{}))
				r.stillHolds(r.b, next)
				r.refused(r.a, r.claim(key))
			})
		},
	},
	{
		name: "WaiterLeaves",
		when: fair,
		why:  "giving up is the same step as releasing, and nobody else loses a place by it",
		check: func(w *world) {
			key := w.key()
			holder := w.hold(w.a, w.claim(key))
			second := w.wait(w.b, w.claim(key))
			third := w.wait(w.a, w.claim(key))
			w.leave(w.b, second, driver.Exit{})
			w.stillHolds(w.a, holder)
			w.stillWaits(w.a, third)
			w.leave(w.a, holder, driver.Exit{})
			w.granted(w.a, third)
			w.gone("Renew of a waiter that left", w.renewed(w.b, second))
		},
	},
	{
		name: "NobodyOvertakesWhoWaits",
		when: fair,
		why: "the holder leaves and the first waiter has not looked yet: a lock that seems free then is " +
			"granted twice",
		check: func(w *world) {
			for waiters := 1; waiters <= 2; waiters++ {
				key := w.key()
				holder := w.hold(w.a, w.claim(key))
				var line []driver.Ticket
				for range waiters {
					line = append(line, w.wait(w.b, w.claim(key)))
				}
				w.leave(w.a, holder, driver.Exit{})
				for _, next := range line {
					w.refused(w.a, w.claim(key))
					w.granted(w.b, next)
					w.refused(w.a, w.claim(key))
					w.leave(w.b, next, driver.Exit{})
				}
				w.empty(w.a, key)
			}
		},
	},
	{
		name: "HoldersLeaveInAnyOrder",
		when: semaphore,
		why:  "the sum of weights is counted, not remembered: it must be right whoever leaves first",
		check: func(w *world) {
			key := w.key()
			var ts []driver.Ticket
			for range 5 {
				ts = append(ts, w.hold(w.a, w.slots(key, 1, 5)))
			}
			for _, i := range []int{2, 0, 4, 1, 3} {
				w.refused(w.b, w.slots(key, 1, 5))
				w.leave(w.a, ts[i], driver.Exit{})
				ts[i] = w.hold(w.a, w.slots(key, 1, 5))
			}
			for _, i := range []int{3, 1, 0, 2, 4} {
				w.leave(w.a, ts[i], driver.Exit{})
			}
			w.empty(w.b, key)
			w.hold(w.b, w.slots(key, 5, 5))
		},
	},
	{
		name: "LeaveOfTheLastComerLeavesTheOthers",
		why: "nobody came after it, but others share the lock with it: a line that is taken for empty then " +
			"lets a writer in beside a reader",
		check: func(w *world) {
			key := w.key()
			first := w.hold(w.a, w.reader(key))
			last := w.hold(w.b, w.reader(key))
			w.leave(w.b, last, driver.Exit{})
			w.refused(w.b, w.claim(key))
			w.stillHolds(w.a, first)
			w.leave(w.a, first, driver.Exit{})
			w.hold(w.b, noWait(w.claim(key)))
		},
	},
	{
		name: "Tombstone",
		why: "a cancelled Lock sends Leave while its Enter may still be under way: the Enter that arrives " +
			"after it must find the door shut, or it holds the lock for nobody",
		check: func(w *world) {
			key := w.key()
			c := w.claim(key)
			w.gone("Leave of a claim that has not arrived", w.a.Leave(w.ctx, driver.Ticket{Claim: c}, driver.Exit{}))
			for _, late := range []driver.Claim{c, noWait(c)} {
				_, err := w.try(w.a, late)
				w.gone("the delayed Enter", err)
			}
			w.empty(w.b, key)
			w.hold(w.b, w.claim(key)) // others are not kept out
		},
	},
	{
		name: "TombstoneOfAClaimInLine",
		why:  "a repeated Enter may be under way when the claim leaves: it must not make the claim again",
		check: func(w *world) {
			key := w.key()
			c := w.claim(key)
			t := w.hold(w.a, c)
			t.Token = 0
			w.leave(w.a, t, driver.Exit{})
			_, err := w.try(w.a, c)
			w.gone("the delayed repeat", err)
			w.empty(w.b, key)
		},
	},
	{
		name: "TombstoneOfAWaiter",
		when: fair,
		why:  "the delayed Enter of a waiter that gave up would wait, and hold, for nobody",
		check: func(w *world) {
			key := w.key()
			holder := w.hold(w.a, w.claim(key))
			c := w.claim(key)
			t := w.wait(w.b, c)
			t.Token = 0
			w.leave(w.b, t, driver.Exit{})
			_, err := w.try(w.b, c)
			w.gone("the delayed Enter", err)
			if n := len(w.line(w.a, key).Claims); n != 1 {
				w.t.Errorf("%d claims are in line; want the holder alone", n)
			}
			w.leave(w.a, holder, driver.Exit{})
			w.empty(w.a, key)
		},
	},
	{
		name: "TombstoneLastsOneTTL",
		why: "an Enter may be under way for as long as its caller gave it, which is less than a lease: the " +
			"tombstone has to outlast it",
		check: func(w *world) {
			w.timed(func(r *round) {
				c := r.short(r.key())
				i := clock(func() {
					r.gone("Leave of a claim that has not arrived", r.a.Leave(r.ctx, driver.Ticket{Claim: c}, driver.Exit{}))
				})
				r.until(i.sent.Add(c.TTL * 8 / 10))
				var err error
				late := clock(func() { _, err = r.try(r.a, c) })
				r.inTime("the delayed Enter", late.answered, i.sent.Add(c.TTL))
				r.gone("the delayed Enter", err)
			})
		},
	},
	{
		name: "TombstoneOutlivesTraffic",
		why:  "the line may empty and fill meanwhile: what keeps one id out must not go with the others",
		check: func(w *world) {
			key := w.key()
			c := w.claim(key)
			w.gone("Leave of a claim that has not arrived", w.a.Leave(w.ctx, driver.Ticket{Claim: c}, driver.Exit{}))
			for range 3 {
				w.leave(w.b, w.hold(w.b, w.claim(key)), driver.Exit{})
			}
			_, err := w.try(w.a, c)
			w.gone("the delayed Enter", err)
		},
	},
	{
		name: "Hygiene",
		why: "a program may lock a million keys a day: a line that nobody is in must not be listed, nor hold " +
			"anybody up",
		check: func(w *world) {
			for range 20 {
				w.leave(w.a, w.hold(w.a, w.claim(w.key())), driver.Exit{})
			}
			for l, err := range w.b.Lines(w.ctx, w.prefix) {
				w.t.Errorf("Lines yields %+v, error %v; want nothing after everybody has left", l, err)
			}
		},
	},
	{
		name: "HygieneAfterExpiry",
		why:  "a crash leaves nothing behind either, once the lease has passed",
		check: func(w *world) {
			w.timed(func(r *round) {
				view := r.open()
				var t driver.Ticket
				i := clock(func() { t = r.hold(view, r.short(r.key())) })
				r.crash(view)
				r.until(r.over(i, t.TTL))
				r.empty(r.b, t.Key)
				r.until(time.Now().Add(r.lease))
				r.empty(r.b, t.Key)
			})
		},
	},
}
