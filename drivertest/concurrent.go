package drivertest

import "github.com/fencelock/fencelock/driver"

var concurrentLaws = []law{
	{"OneInsideAtATime", nil, func(w *world, key string) {
		w.crowd(key, func(int) driver.Claim { return w.claim(key) })
	}, "whatever runs at once, one holds, and each with a larger token than the one before"},
	{"WritersAreAlone", nil, func(w *world, key string) {
		w.crowd(key, func(i int) driver.Claim {
			if i%3 == 0 {
				return w.claim(key)
			}
			return w.reader(key)
		})
	}, "readers overlap, a writer is alone"},
	{"SemaphoreNeverOverflows", semaphore, func(w *world, key string) {
		w.crowd(key, func(i int) driver.Claim { return w.slots(key, int64(1+i%5), 5) })
	}, "the weights inside never exceed the size, however many come and go"},
	{"OneWinsARace", nil, func(w *world, _ string) {
		oneWins[*driver.BusyError](w, func() driver.Claim { return noWait(w.claim(w.key())) })
	}, "of all that try at once exactly one is granted: not two, and not none"},
	{"OneClaimOfManyRepeats", nil, func(w *world, _ string) {
		for range races / 4 {
			c := w.claim(w.key())
			tokens := make([]int64, senders)
			w.each(senders, func(i int) {
				t, err := w.a.try(c)
				w.wrongIf(err != nil || !t.Granted, "a repeat answered granted %v and error %v", t.Granted, err)
				tokens[i] = t.Token
			})
			for _, token := range tokens {
				same(w, "the token of a repeated Enter", token, tokens[0])
			}
			w.b.counts(c.Key, 1)
		}
	}, "an Enter and its repeat may arrive at once: they are one claim"},
	{"LeaveEndsRenewals", nil, func(w *world, _ string) {
		ts := w.enterMany(races, func() driver.Claim { return w.claim(w.key()) })
		w.each(races, func(i int) {
			renews := func() {
				same := *ts[i]
				w.nilOrGone("Renew beside Leave", same.renew())
			}
			together(renews, renews, renews, func() {
				err := ts[i].leave()
				w.wrongIf(err != nil, "Leave beside Renew: %v", err)
			})
			w.b.empty(ts[i].Key)
		})
	}, "a renewal under way when the holder releases must not bring the claim back"},
	{"LeaveWithoutTokenEndsEnter", nil, func(w *world, _ string) {
		w.each(races, func(int) {
			c := w.claim(w.key())
			enters := func() {
				_, err := w.a.try(c)
				w.nilOrGone("Enter beside Leave", err)
			}
			together(enters, enters, func() {
				w.nilOrGone("Leave beside Enter", w.a.with(driver.Ticket{Claim: c}).leave())
			})
			w.b.empty(c.Key)
		})
	}, "a cancelled Lock: whichever of Enter and Leave arrives first, nobody is in line once both have"},
	{"BreakOrLeaveNotBoth", nil, func(w *world, _ string) {
		ts := w.enterMany(races, func() driver.Claim { return w.claim(w.key()) })
		w.each(races, func(i int) {
			t := ts[i]
			var left, broke error
			ends := []func(){
				func() { left = t.leave() },
				func() { broke = w.b.Break(w.ctx, t.Key, t.Token, "race") },
			}
			together(ends[i%2], ends[1-i%2])
			ended := left == nil && driver.Gone(broke) || broke == nil && driver.Gone(left)
			w.wrongIf(!ended, "Leave answered %v and Break %v; want one nil and one ErrGone", left, broke)
			w.b.empty(t.Key)
		})
	}, "a claim ends once: its holder released it, or an operator ended it, and both know which"},
}
