package drivertest

import (
	"fmt"

	"github.com/fencelock/fencelock/driver"
)

var kindLaws = []law{
	{"OtherKindIsRefused", semaphore, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		w.b.otherKind(w.slots(key, 1, 3))
		w.b.otherKind(noWait(w.slots(key, 1, 3)))
		w.b.otherKind(w.slots(key, 1, driver.RW-1))
		w.a.counts(key, 1)
		t.leaves()

		w.a.holds(w.slots(key, 1, 3))
		w.b.otherKind(w.claim(key))
		w.b.otherKind(w.reader(key))
		w.b.otherKind(noWait(w.claim(key)))
	}, "one key as a mutex and as a semaphore would be two half-locks: their weights do not add up"},
	{"WaitersKindCountsToo", all(semaphore, fair), func(w *world, key string) {
		w.a.holds(w.slots(key, 2, 2))
		w.b.waits(w.slots(key, 1, 2))
		w.a.otherKind(w.claim(key))
	}, "a claim behind a waiter of another kind would be judged against a line that does not add up"},
	{"ReadersAndWritersAreOneKind", nil, func(w *world, key string) {
		t := w.a.holds(w.reader(key))
		w.b.refused(w.claim(key))
		t.leaves()
		w.b.holds(w.claim(key))
		w.a.refused(w.reader(key))
	}, "a mutex and a read-write lock share their line"},
	{"EmptyLineTakesAnyKind", semaphore, func(w *world, key string) {
		w.a.holds(w.claim(key)).leaves()
		w.b.holds(w.slots(key, 2, 7)).leaves()
		w.a.holds(w.reader(key))
	}, "the kind belongs to the claims in line, not to the key: once they have left, it may be used anew"},
	{"ExpiredClaimsKindIsForgotten", semaphore, timed(func(w *world, key string) {
		w.view().holds(w.short(key)).crashes().expires()
		w.b.holds(noWait(w.slots(key, 1, 3))).leaves()
	}), "a crashed program must not pin a key to its kind: Enter purges before it judges"},
	{"TwoSizesAreJudgedEachByItsOwn", semaphore, func(w *world, key string) {
		three := w.a.holds(w.slots(key, 1, 3))
		w.wrongIf(three.Mixed, "a claim alone in line is told of two sizes")
		same := w.a.holds(w.slots(key, 1, 3))
		w.wrongIf(same.Mixed, "two claims of one size are told of two sizes")
		w.b.refused(w.slots(key, 1, 2))
		five := w.b.holds(w.slots(key, 3, 5))
		w.wrongIf(!five.Mixed, "a claim of size 5 among claims of size 3 is not told of two sizes")
		w.wrongIf(!three.granted().Mixed, "Await of a claim of size 3 is not told of the size 5 in line")
		w.a.refused(w.slots(key, 1, 3))
		five.leaves()
		w.wrongIf(three.granted().Mixed, "a claim is still told of two sizes after the other size has left")
		w.b.holds(w.slots(key, 1, 3))
	}, "a rolling deploy changes the size of a semaphore: both versions must stay within their own, and be told"},
	{"LargerSizeMayFitBehindAWaiter", all(semaphore, fair), func(w *world, key string) {
		full := w.a.holds(w.slots(key, 2, 2))
		c := w.slots(key, 1, 2)
		small := w.a.waits(c)
		large := w.b.holds(w.slots(key, 1, 4))
		last := w.b.waits(w.slots(key, 1, 4))
		w.wrongIf(!last.Mixed || !w.a.waits(c).Mixed, "waiting claims of two sizes are not told of them")
		// The large one came behind: it does not count against the small one.
		full.leaves()
		small.granted()
		large.stillHolds()
		last.granted()
	}, "each claim is judged by its own size against all before it: nothing else decides"},
	{"LargerSizeIsGrantedPastAWaiter", all(semaphore, fair), timed(func(w *world, key string) {
		w.a.holds(w.slots(key, 1, 5))
		leaves := w.a.holds(w.slots(key, 1, 5))
		small := w.a.waits(w.slots(key, 2, 2))
		large := w.b.waits(w.slots(key, 2, 5))
		w.grants(func() { leaves.leaves() }, large)
		small.stillWaits()
	}), "of two sizes in one line the larger may fit behind the smaller one, and nobody else will wake it"},
}

// otherKind sends an Enter that must answer ErrKind.
func (v *view) otherKind(c driver.Claim) {
	_, err := v.try(c)
	what := fmt.Sprintf("Enter with weight %d of %d on a key of another kind", c.Weight, c.Capacity)
	v.w.answered(what, err, driver.ErrKind)
}
