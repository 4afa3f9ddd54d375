package drivertest

import (
	"strings"

	"github.com/fencelock/fencelock/driver"
)

var markLaws = []law{
	{
		name: "MarkIsHandedOn",
		when: marks,
		why:  "Once keeps there which slot is finished: the next holder must read it with its grant",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.claim(key))
			if t.Mark != "" {
				w.t.Errorf("a new line has the mark %q", t.Mark)
			}
			w.leave(w.a, t, driver.Exit{Mark: "slot 1"})
			w.next(key, "slot 1")
			w.next(key, "slot 1") // until somebody writes another
		},
	},
	{
		name: "MarkReachesTheWaiter",
		when: both(marks, fair),
		why: "the mark is as of the grant, not of the arrival: who waited must see what the holder before it " +
			"finished, or it does the work again",
		check: func(w *world) {
			key := w.key()
			first := w.hold(w.a, w.claim(key))
			c := w.claim(key)
			second := w.wait(w.b, c)
			w.leave(w.a, first, driver.Exit{Mark: "done"})
			if t := w.granted(w.b, second); t.Mark != "done" {
				w.t.Errorf("Await of the granted claim has the mark %q; want %q", t.Mark, "done")
			}
			if t := w.hold(w.b, c); t.Mark != "done" {
				w.t.Errorf("a repeated Enter of the granted claim has the mark %q; want %q", t.Mark, "done")
			}
		},
	},
	{
		name: "LaterMarkReplaces",
		when: marks,
		why:  "the mark is what the last finished holder left, and an empty one is no mark at all",
		check: func(w *world) {
			key := w.key()
			w.leave(w.a, w.hold(w.a, w.claim(key)), driver.Exit{Mark: "one"})
			w.leave(w.b, w.hold(w.b, w.claim(key)), driver.Exit{Mark: "two"})
			w.next(key, "two")
			w.leave(w.b, w.hold(w.b, w.claim(key)), driver.Exit{Mark: ""})
			w.next(key, "two")
		},
	},
	{
		name: "RepeatedLeaveOfTheMarksWriterIsNil",
		when: marks,
		why: "the answer to Leave may be lost: the repeat must say that the mark is written, or finished work " +
			"is reported as lost and done again",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.claim(key))
			w.leave(w.a, t, driver.Exit{Mark: "done"})
			w.leave(w.a, t, driver.Exit{Mark: "done"})
			w.leave(w.a, t, driver.Exit{})
			w.leave(w.b, w.hold(w.b, w.claim(key)), driver.Exit{}) // leaves no mark
			w.leave(w.a, t, driver.Exit{Mark: "done"})
			w.leave(w.b, w.hold(w.b, w.claim(key)), driver.Exit{Mark: "next"})
			w.gone("a Leave repeated after another's mark", w.a.Leave(w.ctx, t, driver.Exit{Mark: "done"}))
			w.next(key, "next")
		},
	},
	{
		name: "DeadClaimWritesNoMark",
		when: both(marks, func(i driver.Info) bool { return i.Lease == driver.PerClaim }),
		why: "a holder that slept through its lease may not say that the slot is finished: its successor is " +
			"doing the work",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				r.leave(r.a, r.hold(r.a, r.claim(key)), driver.Exit{Mark: "before"})
				var t driver.Ticket
				i := clock(func() { t = r.hold(r.a, r.short(key)) })
				r.until(r.over(i, t.TTL))
				r.gone("Leave of an expired claim", r.a.Leave(r.ctx, t, driver.Exit{Mark: "late"}))
				r.next(key, "before")
				r.gone("its repeat", r.a.Leave(r.ctx, t, driver.Exit{Mark: "late"}))
				r.next(key, "before")
			})
		},
	},
	{
		name: "BrokenClaimWritesNoMark",
		when: marks,
		why:  "a holder that an operator ended may not say that the slot is finished",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.claim(key))
			if err := w.b.Break(w.ctx, key, t.Token, "stop"); err != nil {
				w.t.Fatalf("Break: %v", err)
			}
			w.gone("Leave of a broken claim", w.a.Leave(w.ctx, t, driver.Exit{Mark: "late"}))
			w.next(key, "")
		},
	},
	{
		name: "ClaimThatLeftWritesNoMark",
		when: marks,
		why:  "a second Leave must not write what the first did not",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.claim(key))
			w.leave(w.a, t, driver.Exit{})
			w.gone("the second Leave", w.a.Leave(w.ctx, t, driver.Exit{Mark: "late"}))
			w.next(key, "")
		},
	},
	{
		name: "WaiterWritesNoMark",
		when: both(marks, fair),
		why:  "only work done under the lock counts as done",
		check: func(w *world) {
			key := w.key()
			holder := w.hold(w.a, w.claim(key))
			waits := w.wait(w.b, w.claim(key))
			w.leave(w.b, waits, driver.Exit{Mark: "not mine to say"})
			w.gone("its repeat", w.b.Leave(w.ctx, waits, driver.Exit{Mark: "not mine to say"}))
			w.leave(w.a, holder, driver.Exit{})
			w.next(key, "")
		},
	},
	{
		name: "StrangerWritesNoMark",
		when: marks,
		why:  "an id that was never in line has nothing to say",
		check: func(w *world) {
			key := w.key()
			w.leave(w.a, w.hold(w.a, w.claim(key)), driver.Exit{Mark: "right"})
			for _, token := range []int64{0, 1} {
				stranger := driver.Ticket{Claim: w.claim(key), Token: token, Granted: true}
				w.gone("Leave of a stranger", w.a.Leave(w.ctx, stranger, driver.Exit{Mark: "wrong"}))
			}
			w.next(key, "right")
		},
	},
	{
		name: "MarkIsKeptAsItIs",
		when: marks,
		why: "a mark is written by one version of a program and read by another: a store that trims, folds or " +
			"re-encodes it makes them disagree",
		check: func(w *world) {
			for _, m := range []driver.Mark{
				" spaces ", "Case", "case", "2030-01-02T03:04:05.000000006Z", "ünïcödé 標記", `'"\%_{}`,
				driver.Mark(strings.Repeat("m", driver.MaxMark)),
			} {
				key := w.key()
				w.leave(w.a, w.hold(w.a, w.claim(key)), driver.Exit{Mark: m})
				w.next(key, m)
			}
		},
	},
	{
		name: "MarkOfOneKeyIsNotAnothers",
		when: marks,
		why:  "each line has its own",
		check: func(w *world) {
			one, two := w.key(), w.key()
			w.leave(w.a, w.hold(w.a, w.claim(one)), driver.Exit{Mark: "one"})
			w.next(two, "")
			w.next(one, "one")
		},
	},
	{
		name: "LineShowsTheMark",
		when: marks,
		why:  "people look up which slot was the last to finish",
		check: func(w *world) {
			key := w.key()
			w.leave(w.a, w.hold(w.a, w.claim(key)), driver.Exit{Mark: "seen"})
			w.hold(w.a, w.claim(key))
			if l := w.line(w.b, key); l.Mark != "seen" {
				w.t.Errorf("the line shows the mark %q; want %q", l.Mark, "seen")
			}
		},
	},
}

// next holds key for a moment and must find the mark.
func (w *world) next(key string, want driver.Mark) {
	w.t.Helper()
	t := w.hold(w.b, w.claim(key))
	if t.Mark != want {
		w.t.Errorf("the next holder finds the mark %q; want %q", t.Mark, want)
	}
	w.leave(w.b, t, driver.Exit{})
}
