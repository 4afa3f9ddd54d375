package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// onlyWaiting is how a claim leaves whose wait is over.
var onlyWaiting = driver.Exit{IfWaiting: true, Tombstone: true}

var leaveLaws = []law{
	{"LeaveFreesTheLock", nil, func(w *world, key string) {
		w.a.holds(w.claim(key)).leaves()
		w.b.empty(key)
		w.b.holds(noWait(w.claim(key)))
	}, "a lock that is released is free at once, for everybody"},
	{"LeaveNeedsTheId", nil, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		stranger := w.b.with(t.Ticket)
		stranger.ID = newID()
		w.gone("Leave with another id", stranger.leave())
		stranger.ID = driverutil.ShortID(t.ID)
		w.gone("Leave with the id that is shown to people", stranger.leave())
		t.stillHolds()
		w.b.refused(w.claim(t.Key))
	}, "only the id is the right to leave: by key or by token, one holder could end another's lock"},
	//verify:fault The API, on all stores | Release with a cancelled context, twice, after expiry with a successor
	{"SecondLeaveIsGone", nil, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).leaves()
		w.gone("the second Leave", t.leave())
		w.gone("Renew after Leave", t.renew())
		w.gone("Await after Leave", t.await())
	}, "a claim that is not in line cannot leave, and its client should know"},
	//verify:fault The API, on all stores | Release with a cancelled context, twice, after expiry with a successor
	{"LeaveDoesNotEndTheSuccessor", nil, timed(func(w *world, key string) {
		old := w.a.holds(w.short(key))
		if w.info.SharedLease {
			old.leaves()
		} else {
			old.expires()
		}
		next := w.b.holds(w.claim(key))
		w.gone("Leave after the lease", old.leave())
		next.stillHolds()
		w.a.refused(w.claim(key))
	}), "A's lease ends, B acquires, A releases: if that freed B's lock, C would hold beside B"},
	{"WaiterLeaves", fair, func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		second := w.b.waits(w.claim(key))
		third := w.a.waits(w.claim(key))
		second.leaves()
		holder.stillHolds()
		third.stillWaits()
		holder.leaves()
		third.granted()
		w.gone("Renew of a waiter that left", second.renew())
	}, "giving up is the same step as releasing, and nobody else loses a place by it"},
	{"WaitersThatLeaveBlockNobody", fair, func(w *world, key string) {
		w.line(4, func(v *view) *inLine { return v.holds(w.reader(key)) })
		for _, writer := range w.line(3, func(v *view) *inLine { return v.waits(w.claim(key)) }) {
			writer.leaves()
		}
		w.b.holds(w.reader(key))
	}, "what keeps readers out is the writers that wait, and not those that waited"},
	{"LeaveIfWaiting", nil, func(w *world, key string) {
		c := w.claim(key)
		t := w.a.holds(c)
		w.stays("Leave of a holder", t.leave(onlyWaiting))
		t.stillHolds()
		t.renews()
		w.b.refused(w.claim(key))
		same(w, "the token of the repeated Enter", w.a.holds(c).Token, t.Token) // no tombstone
		t.leaves()
		w.gone("Leave of a claim that has left", t.leave(driver.Exit{IfWaiting: true}))
		w.b.empty(key)
	}, "a wait that is over ends no grant: whoever asked for the claim may have been told of the grant elsewhere"},
	{"LeaveIfWaitingOfAWaiter", fair, func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		c := w.claim(key)
		second, third := w.b.waits(c), w.a.waits(w.claim(key))
		second.leaves(onlyWaiting)
		w.gone("Await after Leave", second.await())
		w.b.keptOut(c)
		third.stillWaits()
		holder.leaves()
		w.stays("Leave of a waiter that was granted by another's leaving", third.leave(onlyWaiting))
		third.granted()
		third.renews()
		third.leaves()
		w.b.empty(key)
	}, "a claim that waits leaves as always, and the first moment of the grant counts, not the first look at it"},
	{"LeaveIfWaitingOnASemaphore", fair, func(w *world, key string) {
		holds := w.line(3, func(v *view) *inLine { return v.holds(w.slots(key, 1, 3)) })
		large, small := w.b.waits(w.slots(key, 2, 3)), w.a.waits(w.slots(key, 1, 3))
		holds[0].leaves()
		large.stillWaits()
		w.stays("Leave of a holder", holds[1].leave(onlyWaiting))
		large.leaves(onlyWaiting)
		small.granted()
		w.stays("Leave of the next", small.leave(onlyWaiting))
	}, "whether a claim waits follows from all weights before it"},
	{"NobodyOvertakesWhoWaits", fair, func(w *world, _ string) {
		for waiters := 1; waiters <= 2; waiters++ {
			key := w.key()
			holder := w.a.holds(w.claim(key))
			line := w.line(waiters, func(*view) *inLine { return w.b.waits(w.claim(key)) })
			holder.leaves()
			for _, next := range line {
				w.a.refused(w.claim(key))
				next.granted()
				w.a.refused(w.claim(key))
				next.leaves()
			}
			w.a.empty(key)
		}
	}, "the holder leaves and the first waiter has not looked yet: a lock that seems free then is granted twice"},
	{"HoldersLeaveInAnyOrder", fair, func(w *world, key string) {
		ts := w.line(5, func(*view) *inLine { return w.a.holds(w.slots(key, 1, 5)) })
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
	}, "the sum of weights is counted, not remembered: it must be right whoever leaves first"},
	{"LeaveOfTheLastComerLeavesTheOthers", nil, func(w *world, key string) {
		first := w.a.holds(w.reader(key))
		w.b.holds(w.reader(key)).leaves()
		w.b.refused(w.claim(key))
		first.stillHolds()
		first.leaves()
		w.b.holds(noWait(w.claim(key)))
	}, "others may share the lock with the last comer: a writer must not get in beside them"},
	{"Tombstone", nil, func(w *world, key string) {
		c := w.claim(key)
		w.a.entomb(c)
		for _, late := range []driver.Claim{c, noWait(c)} {
			w.a.keptOut(late)
		}
		w.b.empty(key)
		w.b.holds(w.claim(key)) // others are not kept out
	}, "a cancelled Lock sends Leave while its Enter is under way: the late Enter would hold the lock for nobody"},
	{"TombstoneOfAClaimInLine", nil, func(w *world, key string) {
		c := w.claim(key)
		t := w.a.holds(c)
		t.leaves(driver.Exit{Tombstone: true})
		w.a.keptOut(c)
		w.b.empty(key)
	}, "a repeated Enter may be under way when the claim leaves: it must not make the claim again"},
	{"TombstoneOfAWaiter", fair, func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		c := w.claim(key)
		t := w.b.waits(c)
		t.leaves(driver.Exit{Tombstone: true})
		w.b.keptOut(c)
		w.a.counts(key, 1)
		holder.leaves()
		w.a.empty(key)
	}, "the delayed Enter of a waiter that gave up would wait, and hold, for nobody"},
	{"TombstoneLastsOneTTL", nil, timed(func(w *world, key string) {
		c := w.short(key)
		sent := time.Now()
		w.a.entomb(c)
		w.until(sent.Add(c.TTL * 8 / 10))
		late, err := w.a.try(c)
		w.inTime("the delayed Enter", late.answered, sent.Add(c.TTL))
		w.gone("the delayed Enter", err)
	}), "an Enter may be under way for nearly a lease: the tombstone has to outlast it"},
	{"TombstoneOutlivesTraffic", nil, func(w *world, key string) {
		c := w.claim(key)
		w.a.entomb(c)
		for range 3 {
			w.b.holds(w.claim(key)).leaves()
		}
		w.a.keptOut(c)
	}, "the line may empty and fill meanwhile: what keeps one id out must not go with the others"},
	{"Hygiene", nil, func(w *world, _ string) {
		for range 20 {
			w.a.holds(w.claim(w.key())).leaves()
		}
		for l, err := range w.b.Lines(w.ctx, w.prefix) {
			w.t.Errorf("Lines yields %+v, error %v; want nothing after everybody has left", l, err)
		}
	}, "a program may lock a million keys a day: a line that nobody is in must not be listed, nor hold anybody up"},
	{"HygieneAfterExpiry", nil, timed(func(w *world, key string) {
		w.view().holds(w.short(key)).crashes().expires()
		w.b.empty(key)
		w.until(time.Now().Add(w.lease))
		w.b.empty(key)
	}), "a crash leaves nothing behind either, once the lease has passed"},
}
