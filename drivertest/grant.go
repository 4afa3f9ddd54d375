package drivertest

import "github.com/fencelock/fencelock/driver"

var grantLaws = []law{
	{
		name: "FreeLockIsGrantedAtOnce",
		why:  "a free lock costs one round trip: nobody should have to ask twice for what is free",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.claim(key))
			w.leave(w.a, t, driver.Exit{})
			w.empty(w.b, key)
			w.leave(w.b, w.hold(w.b, w.claim(key)), driver.Exit{})
		},
	},
	{
		name: "HolderExcludesOthers",
		why:  "two holders of one mutex is the one thing that a lock must never allow",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.claim(key))
			w.refused(w.a, w.claim(key))
			w.refused(w.b, w.claim(key))
			w.refused(w.b, w.reader(key))
			w.leave(w.a, t, driver.Exit{})
			w.hold(w.b, w.claim(key))
		},
	},
	{
		name: "OtherKeysAreFree",
		why:  "the lock on one key says nothing about another",
		check: func(w *world) {
			w.hold(w.a, w.claim(w.key()))
			w.hold(w.a, w.claim(w.key()))
			w.hold(w.b, w.claim(w.key()))
		},
	},
	{
		name: "SecondWaitsBehindFirst",
		when: fair,
		why: "a claim that is not granted stands in line, knows how many are ahead, and takes nothing from the " +
			"holder",
		check: func(w *world) {
			key := w.key()
			first := w.hold(w.a, w.claim(key))
			second := w.wait(w.b, w.claim(key))
			if second.Ahead != 1 {
				w.t.Errorf("the second in line has %d ahead; want 1", second.Ahead)
			}
			if h := second.Head; h != nil && (h.Token != first.Token || h.Owner != first.Owner || h.Note != first.Note) {
				w.t.Errorf("the head is %+v; want the holder %+v", h, first)
			}
			third := w.wait(w.a, w.claim(key))
			if third.Ahead != 2 {
				w.t.Errorf("the third in line has %d ahead; want 2", third.Ahead)
			}
			w.stillHolds(w.b, first)
		},
	},
	{
		name: "GrantsComeInOrderOfArrival",
		when: fair,
		why: "nobody starves, and the token drawn on arrival is a fencing token only if the order of grants is " +
			"the order of arrival",
		check: func(w *world) {
			key := w.key()
			views := []driver.Backend{w.a, w.b}
			var line []driver.Ticket
			line = append(line, w.hold(w.a, w.claim(key)))
			for i := 1; i < 6; i++ {
				line = append(line, w.wait(views[i%2], w.claim(key)))
			}
			for i, t := range line {
				b := views[i%2]
				t = w.granted(b, t)
				for j, later := range line[i+1:] {
					w.stillWaits(views[(i+1+j)%2], later)
				}
				w.leave(b, t, driver.Exit{})
			}
		},
	},
	{
		name: "ReadersShareAndWritersExclude",
		when: fair,
		why: "readers overlap, a writer is alone, and a reader behind a waiting writer waits too: else steady " +
			"readers would starve writers",
		check: func(w *world) {
			key := w.key()
			r1 := w.hold(w.a, w.reader(key))
			r2 := w.hold(w.b, w.reader(key))
			writer := w.wait(w.a, w.claim(key))
			r3 := w.wait(w.b, w.reader(key))
			w.leave(w.a, r1, driver.Exit{})
			w.stillWaits(w.a, writer)
			w.stillWaits(w.b, r3)
			w.leave(w.b, r2, driver.Exit{})
			writer = w.granted(w.a, writer)
			w.stillWaits(w.b, r3)
			w.leave(w.a, writer, driver.Exit{})
			w.granted(w.b, r3)
		},
	},
	{
		name: "ReadersShareWithoutQueue",
		when: func(i driver.Info) bool { return !i.Fair },
		why:  "readers overlap and a writer is alone, also where nobody can wait in line",
		check: func(w *world) {
			key := w.key()
			r1 := w.hold(w.a, w.reader(key))
			r2 := w.hold(w.b, w.reader(key))
			w.refused(w.a, w.claim(key))
			w.leave(w.a, r1, driver.Exit{})
			w.refused(w.a, w.claim(key))
			w.leave(w.b, r2, driver.Exit{})
			w.hold(w.a, w.claim(key))
			w.refused(w.b, w.reader(key))
		},
	},
	{
		name: "SmallClaimDoesNotOvertakeLargeOne",
		when: both(fair, semaphore),
		why: "weights of all claims ahead count, waiting ones too: a claim for one slot that slips past one " +
			"for three starves it",
		check: func(w *world) {
			key := w.key()
			three := w.hold(w.a, w.slots(key, 3, 5))
			more := w.wait(w.b, w.slots(key, 3, 5))
			one := w.wait(w.a, w.slots(key, 1, 5))
			w.leave(w.a, three, driver.Exit{})
			w.granted(w.b, more)
			w.granted(w.a, one)
		},
	},
	{
		name: "SemaphoreIsFullAtItsSize",
		when: semaphore,
		why:  "the weights of all holders together never exceed the size, and every slot can be used",
		check: func(w *world) {
			key := w.key()
			a := w.hold(w.a, w.slots(key, 1, 4))
			w.hold(w.b, w.slots(key, 2, 4))
			w.refused(w.a, w.slots(key, 2, 4))
			w.hold(w.b, w.slots(key, 1, 4))
			w.refused(w.a, w.slots(key, 1, 4))
			w.leave(w.a, a, driver.Exit{})
			w.hold(w.a, w.slots(key, 1, 4))
			w.refused(w.b, w.slots(key, 4, 4))
		},
	},
	{
		name: "NoWaitIsRefusedWithTheHead",
		why:  "who is refused is told who holds the lock, and for how long: it is what a person reads",
		check: func(w *world) {
			key := w.key()
			c := w.claim(key)
			c.Owner, c.Note = "the holder", "is busy"
			first := w.hold(w.a, c)
			busy := w.refused(w.b, w.claim(key))
			if busy.Owner != c.Owner || busy.Note != c.Note || busy.Token != first.Token {
				w.t.Errorf("refused with %+v; want owner %q, note %q, token %d", busy, c.Owner, c.Note, first.Token)
			}
			if busy.Ahead != 1 {
				w.t.Errorf("refused with %d ahead; want 1", busy.Ahead)
			}
			if busy.Left <= 0 || w.info.Lease == driver.PerClaim && busy.Left > first.TTL {
				w.t.Errorf("refused with %v left of a lease of %v", busy.Left, first.TTL)
			}
		},
	},
	{
		name: "NoTrace",
		why:  "a refused claim that stayed in line would be granted later, to nobody",
		check: func(w *world) {
			key := w.key()
			first := w.hold(w.a, w.claim(key))
			refused := w.claim(key)
			for range 3 {
				w.refused(w.b, refused)
			}
			if n := len(w.line(w.a, key).Claims); n != 1 {
				w.t.Errorf("%d claims are in line after refusals; want the holder alone", n)
			}
			w.gone("Renew of a refused claim", w.renewed(w.b, driver.Ticket{Claim: refused, Token: first.Token + 1}))
			w.leave(w.a, first, driver.Exit{})
			w.empty(w.a, key)
			// The refusal is not held against the same id.
			w.hold(w.b, noWait(refused))
		},
	},
	{
		name: "NoWaitDoesNotOvertakeWaiters",
		when: fair,
		why:  "a claim that does not wait may not slip past those who do, though it would fit beside the holders",
		check: func(w *world) {
			key := w.key()
			w.hold(w.a, w.reader(key))
			writer := w.wait(w.b, w.claim(key))
			w.refused(w.a, w.reader(key))
			w.stillWaits(w.b, writer)
			if n := len(w.line(w.a, key).Claims); n != 2 {
				w.t.Errorf("%d claims are in line; want the reader and the writer", n)
			}
		},
	},
	{
		name: "NoWaitIsGrantedWhenItFits",
		why:  "a claim that does not wait is a claim like any other once it is granted",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, noWait(w.claim(key)))
			w.stillHolds(w.b, t)
			w.refused(w.b, w.claim(key))
			if err := w.renewed(w.a, t); err != nil {
				w.t.Errorf("Renew: %v", err)
			}
		},
	},
	{
		name: "RepeatedEnterFindsItsClaim",
		why: "an Enter whose answer was lost is sent again: a second claim of the same id would wait behind " +
			"the first for ever",
		check: func(w *world) {
			key := w.key()
			c := w.claim(key)
			first := w.hold(w.a, c)
			for _, again := range []driver.Claim{c, noWait(c)} {
				t := w.hold(w.a, again)
				if t.Token != first.Token {
					w.t.Errorf("the repeated Enter drew token %d; want its own, %d", t.Token, first.Token)
				}
			}
			if n := len(w.line(w.b, key).Claims); n != 1 {
				w.t.Errorf("%d claims are in line after repeats of one Enter; want 1", n)
			}
			w.leave(w.a, first, driver.Exit{})
			w.empty(w.b, key)
		},
	},
	{
		name: "RepeatedEnterOfWaiterAnswersItsTicket",
		when: fair,
		why: "a waiting claim keeps its place when its Enter is repeated, also with NoWait: it is in line, so " +
			"it is not refused",
		check: func(w *world) {
			key := w.key()
			holder := w.hold(w.a, w.claim(key))
			c := w.claim(key)
			first := w.wait(w.b, c)
			behind := w.wait(w.a, w.claim(key))
			for _, again := range []driver.Claim{c, noWait(c)} {
				t := w.wait(w.b, again)
				if t.Token != first.Token || t.Ahead != 1 {
					w.t.Errorf("the repeated Enter has token %d and %d ahead; want %d and 1", t.Token, t.Ahead, first.Token)
				}
			}
			w.leave(w.a, holder, driver.Exit{})
			w.granted(w.b, first)
			w.stillWaits(w.a, behind)
			if t := w.hold(w.b, c); t.Token != first.Token {
				w.t.Errorf("the repeated Enter of the granted claim has token %d; want %d", t.Token, first.Token)
			}
		},
	},
	{
		name: "SameIdOnAnotherKeyIsAnotherClaim",
		why:  "a claim is its key and its id: what happens to one key's claim must not touch another's",
		check: func(w *world) {
			one, two := w.claim(w.key()), w.claim(w.key())
			two.ID = one.ID
			t1, t2 := w.hold(w.a, one), w.hold(w.a, two)
			w.leave(w.a, t1, driver.Exit{})
			w.empty(w.b, one.Key)
			w.stillHolds(w.b, t2)
		},
	},
}
