package drivertest

import (
	"errors"

	"github.com/fencelock/fencelock/driver"
)

var kindLaws = []law{
	{
		name: "OtherKindIsRefused",
		when: semaphore,
		why: "one key as a mutex here and as a semaphore there would be two half-locks: weights of different " +
			"kinds do not add up",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.claim(key))
			for _, c := range []driver.Claim{w.slots(key, 1, 3), noWait(w.slots(key, 1, 3)), w.slots(key, 1, driver.RW-1)} {
				w.otherKind(w.b, c)
			}
			if n := len(w.line(w.a, key).Claims); n != 1 {
				w.t.Errorf("%d claims are in line; want the holder alone", n)
			}
			w.leave(w.a, t, driver.Exit{})

			w.hold(w.a, w.slots(key, 1, 3))
			for _, c := range []driver.Claim{w.claim(key), w.reader(key), noWait(w.claim(key))} {
				w.otherKind(w.b, c)
			}
		},
	},
	{
		name: "WaitersKindCountsToo",
		when: both(semaphore, fair),
		why:  "a claim behind a waiter of another kind would be judged against a line that does not add up",
		check: func(w *world) {
			key := w.key()
			w.hold(w.a, w.slots(key, 2, 2))
			w.wait(w.b, w.slots(key, 1, 2))
			w.otherKind(w.a, w.claim(key))
		},
	},
	{
		name: "ReadersAndWritersAreOneKind",
		why:  "a mutex and a read-write lock share their line",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.reader(key))
			w.refused(w.b, w.claim(key))
			w.leave(w.a, t, driver.Exit{})
			w.hold(w.b, w.claim(key))
			w.refused(w.a, w.reader(key))
		},
	},
	{
		name: "EmptyLineTakesAnyKind",
		when: semaphore,
		why:  "the kind belongs to the claims in line, not to the key: once they have left, it may be used anew",
		check: func(w *world) {
			key := w.key()
			w.leave(w.a, w.hold(w.a, w.claim(key)), driver.Exit{})
			w.leave(w.b, w.hold(w.b, w.slots(key, 2, 7)), driver.Exit{})
			w.hold(w.a, w.reader(key))
		},
	},
	{
		name: "ExpiredClaimsKindIsForgotten",
		when: semaphore,
		why:  "a crashed program must not pin a key to its kind: Enter purges before it judges",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				view := r.open()
				var t driver.Ticket
				i := clock(func() { t = r.hold(view, r.short(key)) })
				r.crash(view)
				r.until(r.over(i, t.TTL))
				next := r.hold(r.b, noWait(r.slots(key, 1, 3)))
				r.leave(r.b, next, driver.Exit{})
			})
		},
	},
	{
		name: "TwoSizesAreJudgedEachByItsOwn",
		when: semaphore,
		why: "a rolling deploy changes the size of a semaphore: both versions must stay within their own, and " +
			"be told",
		check: func(w *world) {
			key := w.key()
			three := w.hold(w.a, w.slots(key, 1, 3))
			if three.Mixed {
				w.t.Errorf("a claim alone in line is told of two sizes")
			}
			same := w.hold(w.a, w.slots(key, 1, 3))
			if same.Mixed {
				w.t.Errorf("two claims of one size are told of two sizes")
			}
			w.refused(w.b, w.slots(key, 1, 2))
			five := w.hold(w.b, w.slots(key, 3, 5))
			if !five.Mixed {
				w.t.Errorf("a claim of size 5 among claims of size 3 is not told of two sizes")
			}
			if t := w.granted(w.a, three); !t.Mixed {
				w.t.Errorf("Await of a claim of size 3 is not told of the size 5 in line")
			}
			w.refused(w.a, w.slots(key, 1, 3))
			w.leave(w.b, five, driver.Exit{})
			if t := w.granted(w.a, three); t.Mixed {
				w.t.Errorf("a claim is still told of two sizes after the other size has left")
			}
			w.hold(w.b, w.slots(key, 1, 3))
		},
	},
	{
		name: "LargerSizeMayFitBehindAWaiter",
		when: both(semaphore, fair),
		why:  "each claim is judged by its own size against all before it: nothing else decides",
		check: func(w *world) {
			key := w.key()
			full := w.hold(w.a, w.slots(key, 2, 2))
			c := w.slots(key, 1, 2)
			small := w.wait(w.a, c)
			large := w.hold(w.b, w.slots(key, 1, 4))
			last := w.wait(w.b, w.slots(key, 1, 4))
			if !last.Mixed || !w.wait(w.a, c).Mixed {
				w.t.Errorf("waiting claims of two sizes are not told of them")
			}
			// The large one came behind: it does not count against the small one.
			w.leave(w.a, full, driver.Exit{})
			w.granted(w.a, small)
			w.stillHolds(w.b, large)
			w.granted(w.b, last)
		},
	},
	{
		name: "LargerSizeIsGrantedPastAWaiter",
		when: both(semaphore, fair),
		why: "two sizes in one line: the smaller one may have to wait on while the larger one behind it fits, " +
			"and nobody else will tell it",
		check: func(w *world) {
			w.prompted(func() string {
				key := w.key()
				w.hold(w.a, w.slots(key, 1, 5))
				leaves := w.hold(w.a, w.slots(key, 1, 5))
				small := w.wait(w.a, w.slots(key, 2, 2))
				large := w.wait(w.b, w.slots(key, 2, 5))
				late := w.grants(func() { w.leave(w.a, leaves, driver.Exit{}) }, waiter{w.b, large})
				w.stillWaits(w.a, small)
				return late
			})
		},
	},
}

// otherKind sends an Enter that must answer ErrKind.
func (w *world) otherKind(b driver.Backend, c driver.Claim) {
	w.t.Helper()
	t, err := w.try(b, c)
	if !errors.Is(err, driver.ErrKind) {
		w.t.Errorf("Enter with weight %d of %d on a key of another kind answered granted %v and error %v; want ErrKind",
			c.Weight, c.Capacity, t.Granted, err)
	}
}
