package drivertest

import (
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

var kindLaws = []law{
	//verify:fault The API, on all stores | one key as two kinds of lock; a semaphore of two sizes
	{"OtherKindIsRefused", fair, func(w *world, key string) {
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
	{"WaitersKindCountsToo", fair, func(w *world, key string) {
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
	{"EmptyLineTakesAnyKind", fair, func(w *world, key string) {
		w.a.holds(w.claim(key)).leaves()
		w.b.holds(w.slots(key, 2, 7)).leaves()
		w.a.holds(w.reader(key))
	}, "the kind belongs to the claims in line, not to the key: once they have left, it may be used anew"},
	{"ExpiredClaimsKindIsForgotten", fair, timed(func(w *world, key string) {
		w.view().holds(w.short(key)).crashes().expires()
		w.b.holds(noWait(w.slots(key, 1, 3))).leaves()
		short := lasting(w.slots(w.key(), 1, 3), w.lease)
		w.view().holds(short).crashes().expires()
		w.b.holds(noWait(w.slots(short.Key, 1, 2))).leaves()
	}), "a crashed program must not pin a key to its kind: Enter purges before it judges"},
	//verify:fault The API, on all stores | one key as two kinds of lock; a semaphore of two sizes
	{"OtherSizeIsRefused", fair, func(w *world, key string) {
		first := w.a.holds(w.slots(key, 1, 3))
		for _, size := range []int64{1, 2, 4, driver.RW - 1} {
			w.b.otherKind(w.slots(key, 1, size))
			w.b.otherKind(noWait(w.slots(key, 1, size)))
		}
		w.a.counts(key, 1)
		second := w.b.holds(w.slots(key, 2, 3))
		first.leaves()
		w.a.otherKind(w.slots(key, 1, 4))
		second.leaves()
		w.a.holds(w.slots(key, 3, 4))
		w.b.otherKind(w.slots(key, 1, 3))
	}, "two programs with two sizes would each count to its own: neither size is a limit of all"},
	{"WaitersSizeCountsToo", fair, func(w *world, key string) {
		full := w.a.holds(w.slots(key, 2, 2))
		waiter := w.a.waits(w.slots(key, 1, 2))
		w.b.otherKind(w.slots(key, 1, 3))
		full.leaves()
		w.b.otherKind(w.slots(key, 1, 3))
		waiter.granted().leaves()
		w.b.holds(w.slots(key, 1, 3))
	}, "the size must not change under those who wait: they are granted by the order of arrival alone"},
	{"LingeringClaimKeepsTheSize", all(fair, lingers), func(w *world, key string) {
		w.a.holds(w.slots(key, 1, 2)).leaves(driver.Exit{Linger: w.longest()})
		w.b.otherKind(noWait(w.slots(key, 1, 3)))
		w.b.holds(noWait(w.slots(key, 1, 2)))
	}, "a claim that lingers still counts, so its size does too"},
}

// otherKind sends an Enter that must answer ErrKind, and say what the line is and what c is.
func (v *view) otherKind(c driver.Claim) {
	_, err := v.try(c)
	what := fmt.Sprintf("Enter with weight %d of %d on a key of another kind", c.Weight, c.Capacity)
	v.w.answered(what, err, driver.ErrKind)
	if l := v.line(c.Key); err != nil && len(l.Claims) > 0 {
		text := driverutil.CheckKind(c.Capacity, l.Claims[0].Capacity).Error()
		v.w.wrongIf(!strings.Contains(err.Error(), text), "%s answered %q; want %q", what, err, text)
	}
}
