package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

var leaveLaws = []law{
	{"LeaveFreesTheLock", nil,
		"a lock that is released is free at once, for everybody",
		func(w *world, key string) {
			w.a.holds(w.claim(key)).leaves()
			w.b.empty(key)
			w.b.holds(noWait(w.claim(key)))
		}},
	{"LeaveNeedsTheId", nil,
		"only the id is the right to leave: by key or by token, one holder could end another's lock",
		func(w *world, key string) {
			t := w.a.holds(w.claim(key))
			stranger := w.b.with(t.Ticket)
			stranger.ID = newID()
			w.gone("Leave with another id", stranger.leave())
			stranger.ID = driver.ShortID(t.ID)
			w.gone("Leave with the id that is shown to people", stranger.leave())
			t.stillHolds()
			w.b.refused(w.claim(t.Key))
		}},
	{"SecondLeaveIsGone", nil,
		"a claim that is not in line cannot leave, and its client should know",
		func(w *world, key string) {
			t := w.a.holds(w.claim(key))
			t.leaves()
			w.gone("the second Leave", t.leave())
			w.gone("Renew after Leave", t.renew())
			w.gone("Await after Leave", t.await())
		}},
	{"LeaveDoesNotEndTheSuccessor", nil,
		"A's lease ends, B acquires, A releases: if that freed B's lock, C would hold beside B",
		timed(func(r *round, key string) {
			old := r.a.holds(r.short(key))
			if r.info.Lease == driver.PerClient {
				old.leaves()
			} else {
				old.expires()
			}
			next := r.b.holds(r.claim(key))
			r.gone("Leave after the lease", old.leave())
			next.stillHolds()
			r.a.refused(r.claim(key))
		})},
	{"WaiterLeaves", fair,
		"giving up is the same step as releasing, and nobody else loses a place by it",
		func(w *world, key string) {
			holder := w.a.holds(w.claim(key))
			second := w.b.waits(w.claim(key))
			third := w.a.waits(w.claim(key))
			second.leaves()
			holder.stillHolds()
			third.stillWaits()
			holder.leaves()
			third.granted()
			w.gone("Renew of a waiter that left", second.renew())
		}},
	{"NobodyOvertakesWhoWaits", fair,
		"the holder leaves and the first waiter has not looked yet: a lock that seems free then is granted twice",
		func(w *world, _ string) {
			for waiters := 1; waiters <= 2; waiters++ {
				key := w.key()
				holder := w.a.holds(w.claim(key))
				var line []*inLine
				for range waiters {
					line = append(line, w.b.waits(w.claim(key)))
				}
				holder.leaves()
				for _, next := range line {
					w.a.refused(w.claim(key))
					next.granted()
					w.a.refused(w.claim(key))
					next.leaves()
				}
				w.a.empty(key)
			}
		}},
	{"HoldersLeaveInAnyOrder", semaphore,
		"the sum of weights is counted, not remembered: it must be right whoever leaves first",
		func(w *world, key string) {
			var ts []*inLine
			for range 5 {
				ts = append(ts, w.a.holds(w.slots(key, 1, 5)))
			}
			for _, i := range []int{2, 0, 4, 1, 3} {
				w.b.refused(w.slots(key, 1, 5))
				ts[i].leaves()
				ts[i] = w.a.holds(w.slots(key, 1, 5))
			}
			for _, i := range []int{3, 1, 0, 2, 4} {
				ts[i].leaves()
			}
			w.b.empty(key)
			w.b.holds(w.slots(key, 5, 5))
		}},
	{"LeaveOfTheLastComerLeavesTheOthers", nil,
		"nobody came after it, but others share the lock with it: a line that is taken for empty then lets a " +
			"writer in beside a reader",
		func(w *world, key string) {
			first := w.a.holds(w.reader(key))
			last := w.b.holds(w.reader(key))
			last.leaves()
			w.b.refused(w.claim(key))
			first.stillHolds()
			first.leaves()
			w.b.holds(noWait(w.claim(key)))
		}},
	{"Tombstone", nil,
		"a cancelled Lock sends Leave while its Enter may still be under way: the Enter that arrives after it " +
			"must find the door shut, or it holds the lock for nobody",
		func(w *world, key string) {
			c := w.claim(key)
			w.a.entomb(c)
			for _, late := range []driver.Claim{c, noWait(c)} {
				w.a.keptOut("the delayed Enter", late)
			}
			w.b.empty(key)
			w.b.holds(w.claim(key)) // others are not kept out
		}},
	{"TombstoneOfAClaimInLine", nil,
		"a repeated Enter may be under way when the claim leaves: it must not make the claim again",
		func(w *world, key string) {
			c := w.claim(key)
			t := w.a.holds(c)
			t.Token = 0
			t.leaves()
			w.a.keptOut("the delayed repeat", c)
			w.b.empty(key)
		}},
	{"TombstoneOfAWaiter", fair,
		"the delayed Enter of a waiter that gave up would wait, and hold, for nobody",
		func(w *world, key string) {
			holder := w.a.holds(w.claim(key))
			c := w.claim(key)
			t := w.b.waits(c)
			t.Token = 0
			t.leaves()
			w.b.keptOut("the delayed Enter", c)
			w.a.counts(key, 1)
			holder.leaves()
			w.a.empty(key)
		}},
	{"TombstoneLastsOneTTL", nil,
		"an Enter may be under way for as long as its caller gave it, which is less than a lease: the tombstone " +
			"has to outlast it",
		timed(func(r *round, key string) {
			c := r.short(key)
			sent := time.Now()
			r.a.entomb(c)
			r.until(sent.Add(c.TTL * 8 / 10))
			late, err := r.a.try(c)
			r.inTime("the delayed Enter", late.answered, sent.Add(c.TTL))
			r.gone("the delayed Enter", err)
		})},
	{"TombstoneOutlivesTraffic", nil,
		"the line may empty and fill meanwhile: what keeps one id out must not go with the others",
		func(w *world, key string) {
			c := w.claim(key)
			w.a.entomb(c)
			for range 3 {
				w.b.holds(w.claim(key)).leaves()
			}
			w.a.keptOut("the delayed Enter", c)
		}},
	{"Hygiene", nil,
		"a program may lock a million keys a day: a line that nobody is in must not be listed, nor hold anybody up",
		func(w *world, _ string) {
			for range 20 {
				w.a.holds(w.claim(w.key())).leaves()
			}
			for l, err := range w.b.Lines(w.ctx, w.prefix) {
				w.t.Errorf("Lines yields %+v, error %v; want nothing after everybody has left", l, err)
			}
		}},
	{"HygieneAfterExpiry", nil,
		"a crash leaves nothing behind either, once the lease has passed",
		timed(func(r *round, key string) {
			t := r.view().holds(r.short(key))
			t.crashes()
			t.expires()
			r.b.empty(t.Key)
			r.until(time.Now().Add(r.lease))
			r.b.empty(t.Key)
		})},
}
