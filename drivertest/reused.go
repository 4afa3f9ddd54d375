package drivertest

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// reusedLaws are about an Enter whose ID is that of a claim with another capacity or weight.
var reusedLaws = []law{
	{"ReusedIDIsRefused", nil, func(w *world, key string) {
		writer := w.a.holds(w.claim(key))
		w.a.reuses(writer, w.reader(key))
		writer.stillHolds()
		w.b.refused(w.reader(key))
		writer.leaves()

		reader := w.a.holds(w.reader(key))
		w.a.reuses(reader, w.claim(key))
		w.b.holds(w.reader(key)).leaves()
		reader.renews()
		reader.leaves()
		w.a.empty(key)
	}, "a reader that asks again as a writer and is shown its own grant writes beside the other readers"},
	{"ReusedIDOfAnotherSizeIsRefused", fair, func(w *world, key string) {
		p := w.a.holds(w.slots(key, 2, 9))
		permits := []driver.Claim{w.slots(key, 9, 9), w.slots(key, 1, 9), w.slots(key, 2, 8)}
		for _, c := range append(permits, w.claim(key), w.reader(key)) {
			w.a.reuses(p, c)
		}
		w.b.holds(w.slots(key, 7, 9)).leaves()
		w.b.refused(w.slots(key, 8, 9))
		p.stillHolds()
		p.leaves()
		w.a.empty(key)
	}, "whoever is shown the grant of 5 permits for a request of 9 works with 4 that others have"},
	{"ReusedIDLeavesTheWaiterInLine", fair, timed(func(w *world, key string) {
		holder := w.b.holds(w.claim(key))
		waiter := w.a.waits(w.reader(key))
		w.a.reuses(waiter, w.claim(key))
		waiter.stillWaits()
		w.grants(func() { holder.leaves() }, waiter)
	}), "a mistake in one request must not cost another its place, nor its wake-up"},
	{"ReusedIDDoesNotRenew", perClaim, timed(func(w *world, key string) {
		t := w.a.holds(w.short(key))
		w.until(t.sent.Add(w.lease * 6 / 10))
		refused := w.a.reuse(t, lasting(w.reader(key), w.lease))
		w.inTime("the answer to the Enter of a reused ID", time.Now(), t.sent.Add(w.lease))
		refused()
		t.expires()
		w.b.holds(noWait(w.claim(key)))
	}), "a claim whose holder has died must not live on by requests that are refused"},
	{"ReusedNameIsRefused", detaches, func(w *world, key string) {
		writer := w.a.holds(named(w.claim(key)))
		w.b.reuses(writer, w.reader(key))
		w.a.reuses(writer, w.reader(key))
		w.a.counts(key, 1)
		w.b.refused(w.claim(key))
		again := w.b.holds(writer.Claim)
		same(w, "the token of the Enter after that", again.Token, writer.Token)
		w.b.reuses(writer, w.reader(key))
		writer.renews()
		again.leaves()

		reader := w.a.holds(named(w.reader(key)))
		w.b.reuses(reader, w.claim(key))
		w.b.holds(w.reader(key)).leaves()
		reader.leaves()
		w.a.empty(key)
	}, "a service that names two wishes alike must hear of it at whichever server it asks"},
	{"ReusedNameOfAnotherSizeIsRefused", all(detaches, fair), func(w *world, key string) {
		p := w.a.holds(named(w.slots(key, 5, 9)))
		for _, c := range []driver.Claim{w.slots(key, 9, 9), w.slots(key, 5, 8), w.claim(key), w.reader(key)} {
			w.b.reuses(p, c)
			w.b.reuses(p, noWait(c))
		}
		w.a.counts(key, 1)
		w.b.holds(p.Claim).leaves()
		w.a.empty(key)
	}, "a semaphore that is asked through another server must not count one name as two numbers of permits"},
	{"ReusedNameLeavesTheWaiterInLine", all(detaches, fair), timed(func(w *world, key string) {
		holder := w.b.holds(w.claim(key))
		waiter := w.a.waits(named(w.reader(key)))
		w.b.reuses(waiter, w.claim(key))
		waiter.stillWaits()
		w.grants(func() { holder.leaves() }, waiter)
	}), "the push must go on to where the claim waits, not to where its name was used once more"},
	{"RepeatedNameKeepsItsText", detaches, func(w *world, key string) {
		holder := w.a.holds(named(w.claim(key)))
		waiter := w.a.waits(named(w.claim(key)))
		keeps := func(x *inLine) {
			for _, v := range w.views() {
				again := x.Claim
				again.Owner, again.Note, again.Trace = "another", "of the repeated request", "another's"
				again.LockDelay = w.info.MinTTL
				_, err := v.Enter(w.ctx, again)
				w.wrongIf(err != nil, "a repeated Enter: %v", err)
				for _, c := range v.line(key).Claims {
					if c.ID == driverutil.ShortID(x.ID) {
						same(w, "what a claim carries after a repeated Enter", carried(&c.Claim), carried(&x.Claim))
					}
				}
			}
		}
		keeps(holder)
		keeps(waiter)
		waiter.leaves()
		holder.leaves()
	}, "a server keeps with the claim what the first request was for, such as its slot"},
}

// carried returns what a claim carries for others.
func carried(c *driver.Claim) driver.Claim {
	return driver.Claim{Owner: c.Owner, Note: c.Note, Trace: c.Trace, LockDelay: c.LockDelay}
}

// reuses sends c with the ID of x, which must be refused.
func (v *view) reuses(x *inLine, c driver.Claim) { v.reuse(x, c)() }

// reuse sends c with the ID of x. What it returns holds the answer to a refusal.
func (v *view) reuse(x *inLine, c driver.Claim) (refused func()) {
	c.ID, c.Named = x.ID, x.Named
	_, err := v.Enter(v.w.ctx, c)
	what := fmt.Sprintf("Enter with weight %d of %d, of an ID that has %d of %d,",
		c.Weight, c.Capacity, x.Weight, x.Capacity)
	return func() { v.w.answered(what, err, driver.ErrReused) }
}
