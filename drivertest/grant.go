package drivertest

import "github.com/fencelock/fencelock/driver"

var grantLaws = []law{
	{"FreeLockIsGrantedAtOnce", nil, func(w *world, key string) {
		w.a.holds(w.claim(key)).leaves()
		w.b.empty(key)
		w.b.holds(w.claim(key)).leaves()
	}, "a free lock costs one round trip: nobody should have to ask twice for what is free"},
	{"HolderExcludesOthers", nil, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		w.a.refused(w.claim(key))
		w.b.refused(w.claim(key))
		w.b.refused(w.reader(key))
		t.leaves()
		w.b.holds(w.claim(key))
	}, "two holders of one mutex is the one thing that a lock must never allow"},
	//verify:fault The API, on all stores | keys: empty, of a megabyte, binary, with each separator, similar
	{"OtherKeysAreFree", nil, func(w *world, key string) {
		w.a.holds(w.claim(key))
		w.a.holds(w.claim(w.key()))
		w.b.holds(w.claim(w.key()))
	}, "the lock on one key says nothing about another"},
	{"SecondWaitsBehindFirst", fair, func(w *world, key string) {
		first := w.a.holds(w.claim(key))
		second := w.b.waits(w.claim(key))
		same(w, "how many are ahead of the second", second.Ahead, 1)
		h := second.Head
		w.wrongIf(h != nil && (h.Token != first.Token || h.Owner != first.Owner || h.Note != first.Note),
			"the head is %+v; want the holder %+v", h, first)
		same(w, "how many are ahead of the third", w.a.waits(w.claim(key)).Ahead, 2)
		first.stillHolds()
	}, "a claim that is not granted stands in line, knows how many are ahead, and takes nothing from the holder"},
	{"GrantsComeInOrderOfArrival", fair, func(w *world, key string) {
		line := []*inLine{w.a.holds(w.claim(key))}
		line = append(line, w.line(5, func(v *view) *inLine { return v.waits(w.claim(key)) })...)
		for i, t := range line {
			t.granted()
			for _, later := range line[i+1:] {
				later.stillWaits()
			}
			t.leaves()
		}
	}, "nobody starves; and a token drawn on arrival fences only if grants come in the order of arrival"},
	{"ReadersShareAndWritersExclude", fair, func(w *world, key string) {
		r1 := w.a.holds(w.reader(key))
		r2 := w.b.holds(w.reader(key))
		writer := w.a.waits(w.claim(key))
		r3 := w.b.waits(w.reader(key))
		r1.leaves()
		writer.stillWaits()
		r3.stillWaits()
		r2.leaves()
		writer.granted()
		r3.stillWaits()
		writer.leaves()
		r3.granted()
	}, "readers overlap, a writer is alone, and a reader waits behind a waiting writer, or writers would starve"},
	{"ReadersShareWithoutQueue", unfair, func(w *world, key string) {
		r1 := w.a.holds(w.reader(key))
		r2 := w.b.holds(w.reader(key))
		w.a.refused(w.claim(key))
		r1.leaves()
		w.a.refused(w.claim(key))
		r2.leaves()
		w.a.holds(w.claim(key))
		w.b.refused(w.reader(key))
	}, "readers overlap and a writer is alone, also where nobody can wait in line"},
	{"SmallClaimDoesNotOvertakeLargeOne", fair, func(w *world, key string) {
		three := w.a.holds(w.slots(key, 3, 5))
		more := w.b.waits(w.slots(key, 3, 5))
		one := w.a.waits(w.slots(key, 1, 5))
		three.leaves()
		more.granted()
		one.granted()
	}, "the weights of waiting claims count too: small claims that slip past a large one starve it"},
	{"SemaphoreIsFullAtItsSize", fair, func(w *world, key string) {
		a := w.a.holds(w.slots(key, 1, 4))
		w.b.holds(w.slots(key, 2, 4))
		w.a.refused(w.slots(key, 2, 4))
		w.b.holds(w.slots(key, 1, 4))
		w.a.refused(w.slots(key, 1, 4))
		a.leaves()
		w.a.holds(w.slots(key, 1, 4))
		w.b.refused(w.slots(key, 4, 4))
	}, "the weights of all holders together never exceed the size, and every slot can be used"},
	{"NoWaitIsRefusedWithTheHead", nil, func(w *world, key string) {
		c := w.claim(key)
		c.Owner, c.Note, c.Trace = "the holder", "is busy", "of the holder"
		first := w.a.holds(c)
		busy := w.b.refused(w.claim(key))
		w.wrongIf(busy.Owner != c.Owner || busy.Note != c.Note || busy.Trace != c.Trace || busy.Token != first.Token,
			"refused with %+v; want owner %q, note %q, token %d", busy, c.Owner, c.Note, first.Token)
		same(w, "how many are ahead", busy.Ahead, 1)
		w.wrongIf(busy.Left <= 0 || !w.info.SharedLease && busy.Left > first.TTL,
			"refused with %v left of a lease of %v", busy.Left, first.TTL)
	}, "who is refused is told who holds the lock, and for how long: it is what a person reads"},
	{"NoTrace", nil, timed(func(w *world, key string) {
		first := w.a.holds(w.claim(key))
		refused := w.claim(key)
		for range 3 {
			w.b.refused(refused)
		}
		w.a.counts(key, 1)
		w.gone("Renew of a refused claim", w.b.with(driver.Ticket{Claim: refused, Token: first.Token + 1}).renew())
		first.leaves()
		w.a.empty(key)
		// The refusal is not held against the ID, unless the request may have been sent
		// twice: see under.
		again, err := w.b.try(noWait(refused))
		if driver.Gone(err) {
			panic(void{why: "the ID of a refused claim is kept out"})
		}
		w.wrongIf(!again.Granted, "the claim that was refused is not granted: %v", err)
	}), "a refused claim that stayed in line would be granted later, to nobody"},
	{"NoWaitDoesNotOvertakeWaiters", fair, func(w *world, key string) {
		w.a.holds(w.reader(key))
		writer := w.b.waits(w.claim(key))
		w.a.refused(w.reader(key))
		writer.stillWaits()
		w.a.counts(key, 2)
	}, "a claim that does not wait may not slip past those who do, though it would fit beside the holders"},
	{"NoWaitIsGrantedWhenItFits", nil, func(w *world, key string) {
		t := w.a.holds(noWait(w.claim(key)))
		t.stillHolds()
		w.b.refused(w.claim(key))
		t.renews()
	}, "a claim that does not wait is a claim like any other once it is granted"},
	{"RepeatedEnterFindsItsClaim", nil, func(w *world, key string) {
		c := w.claim(key)
		first := w.a.holds(c)
		for _, again := range []driver.Claim{c, noWait(c)} {
			same(w, "the token of the repeated Enter", w.a.holds(again).Token, first.Token)
		}
		w.b.counts(key, 1)
		first.leaves()
		w.b.empty(key)
	}, "an Enter whose answer was lost is repeated: a second claim of its ID would wait behind the first forever"},
	{"RepeatedEnterOfWaiterAnswersItsTicket", fair, func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		c := w.claim(key)
		first := w.b.waits(c)
		behind := w.a.waits(w.claim(key))
		for _, again := range []driver.Claim{c, noWait(c)} {
			t := w.b.waits(again)
			w.wrongIf(t.Token != first.Token || t.Ahead != 1,
				"the repeated Enter has token %d and %d ahead; want %d and 1", t.Token, t.Ahead, first.Token)
		}
		holder.leaves()
		first.granted()
		behind.stillWaits()
		same(w, "the token of the repeated Enter, once granted", w.b.holds(c).Token, first.Token)
	}, "a repeated Enter keeps the claim's place, also with NoWait: a claim in line is not refused"},
	{"SameIdOnAnotherKeyIsAnotherClaim", nil, func(w *world, key string) {
		one, two := w.claim(key), w.claim(w.key())
		two.ID = one.ID
		t1, t2 := w.a.holds(one), w.a.holds(two)
		t1.leaves()
		w.b.empty(one.Key)
		t2.stillHolds()
	}, "a claim is its key and its id: what happens to one key's claim must not touch another's"},
}
