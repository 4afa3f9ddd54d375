package drivertest

import (
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

var markLaws = []law{
	{"MarkIsHandedOn", fair, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		same(w, "the mark of a new line", t.Mark, "")
		t.leaves(driver.Exit{Mark: "slot 1"})
		w.next(key, "slot 1")
		w.next(key, "slot 1") // until somebody writes another
	}, "Once keeps there which slot is finished: the next holder must read it with its grant"},
	{"MarkReachesTheWaiter", fair, func(w *world, key string) {
		first := w.a.holds(w.claim(key))
		c := w.claim(key)
		second := w.b.waits(c)
		first.leaves(driver.Exit{Mark: "done"})
		same(w, "the mark after Await", second.granted().Mark, "done")
		same(w, "the mark after a repeated Enter", w.b.holds(c).Mark, "done")
	}, "a mark is as of the grant: a waiter must see what the holder before it finished, or does it again"},
	{"LaterMarkReplaces", fair, func(w *world, key string) {
		w.a.holds(w.claim(key)).leaves(driver.Exit{Mark: "one"})
		w.b.holds(w.claim(key)).leaves(driver.Exit{Mark: "two"})
		w.next(key, "two")
		w.b.holds(w.claim(key)).leaves()
		w.next(key, "two")
	}, "the mark is what the last finished holder left, and an empty one is no mark at all"},
	{"MarkNeverMovesBack", fair, func(w *world, _ string) {
		// In the order of bytes, which is that of no language.
		order := []string{"2030-01", "2030-02", "2030-02 b", "B", "a", "\xc3\xa9", "\xff"}
		for i := range order[1:] {
			key, older, newer := w.key(), order[i], order[i+1]
			w.a.holds(w.claim(key)).leaves(driver.Exit{Mark: newer})
			t := w.b.holds(w.claim(key)).leaves(driver.Exit{Mark: older})
			w.next(key, newer)
			t.leaves(driver.Exit{Mark: older}) // sent again
			w.next(key, newer)
			w.a.holds(w.claim(key)).leaves(driver.Exit{Mark: newer + "x"})
			w.next(key, newer+"x")
		}
	}, "a release of an older slot that comes late must not open a newer one that is done"},
	{"MarkNeverMovesBackBesideOthers", fair, func(w *world, _ string) {
		for range 6 { // the newest mark may happen to be written last
			key := w.key()
			readers := w.line(8, func(v *view) *inLine { return v.holds(w.reader(key)) })
			w.each(len(readers), func(i int) {
				e := driver.Exit{Mark: fmt.Sprintf("slot %d", i*5%8)}
				err := readers[i].leave(e)
				for err != nil && !driver.Gone(err) && w.ctx.Err() == nil {
					if err = readers[i].leave(e); driver.Gone(err) {
						return // it was done before, and another has left its mark since
					}
				}
				if err != nil {
					w.t.Errorf("Leave with a mark beside others: %v", err)
				}
			})
			w.next(key, "slot 7")
		}
	}, "the store compares and writes in one step: of two that leave at once, the newer mark stays"},
	{"RepeatedLeaveOfTheMarksWriterIsNil", fair, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).leaves(driver.Exit{Mark: "done"})
		t.leaves(driver.Exit{Mark: "done"})
		t.leaves()
		w.b.holds(w.claim(key)).leaves() // leaves no mark
		t.leaves(driver.Exit{Mark: "done"})
		w.b.holds(w.claim(key)).leaves(driver.Exit{Mark: "next"})
		w.gone("a Leave repeated after another's mark", t.leave(driver.Exit{Mark: "done"}))
		w.next(key, "next")
	}, "a repeated Leave must say that the mark is written, or finished work is done again"},
	{"DeadClaimWritesNoMark", all(fair, perClaim), timed(func(w *world, key string) {
		w.a.holds(w.claim(key)).leaves(driver.Exit{Mark: "before"})
		t := w.a.holds(w.short(key)).expires()
		w.gone("Leave of an expired claim", t.leave(driver.Exit{Mark: "late"}))
		w.next(key, "before")
		w.gone("its repeat", t.leave(driver.Exit{Mark: "late"}))
		w.next(key, "before")
	}), "a holder that slept through its lease may not finish the slot: its successor is doing the work"},
	{"BrokenClaimWritesNoMark", fair, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).brokenBy(w.b, "stop")
		w.gone("Leave of a broken claim", t.leave(driver.Exit{Mark: "late"}))
		w.next(key, "")
	}, "a holder that an operator ended may not say that the slot is finished"},
	{"ClaimThatLeftWritesNoMark", fair, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).leaves()
		w.gone("the second Leave", t.leave(driver.Exit{Mark: "late"}))
		w.next(key, "")
	}, "a second Leave must not write what the first did not"},
	{"WaiterWritesNoMark", fair, func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		waits := w.b.waits(w.claim(key)).leaves(driver.Exit{Mark: "not mine to say"})
		w.gone("its repeat", waits.leave(driver.Exit{Mark: "not mine to say"}))
		holder.leaves()
		w.next(key, "")
	}, "only work done under the lock counts as done"},
	{"StrangerWritesNoMark", fair, func(w *world, key string) {
		w.a.holds(w.claim(key)).leaves(driver.Exit{Mark: "right"})
		for _, token := range []int64{0, 1} {
			stranger := w.a.with(driver.Ticket{Claim: w.claim(key), Token: token, Granted: true})
			w.gone("Leave of a stranger", stranger.leave(driver.Exit{Mark: "wrong"}))
		}
		w.next(key, "right")
	}, "an id that was never in line has nothing to say"},
	{"MarkIsKeptAsItIs", fair, func(w *world, _ string) {
		for _, m := range []string{
			" spaces ", "Case", "case", "2030-01-02T03:04:05.000000006Z", "ünïcödé 標記", `'"\%_{}`,
			strings.Repeat("m", limit.Mark),
		} {
			key := w.key()
			w.a.holds(w.claim(key)).leaves(driver.Exit{Mark: m})
			w.next(key, m)
		}
	}, "two versions of a program read one mark: a store that trims, folds or re-encodes it divides them"},
	{"MarkOfOneKeyIsNotAnothers", fair, func(w *world, key string) {
		w.a.holds(w.claim(key)).leaves(driver.Exit{Mark: "one"})
		w.next(w.key(), "")
		w.next(key, "one")
	}, "each line has its own"},
	{"LineShowsTheMark", fair, func(w *world, key string) {
		w.a.holds(w.claim(key)).leaves(driver.Exit{Mark: "seen"})
		w.a.holds(w.claim(key))
		same(w, "the mark that the line shows", w.b.line(key).Mark, "seen")
	}, "people look up which slot was the last to finish"},
}

// next holds key for a moment and must find the mark.
func (w *world) next(key string, want string) {
	t := w.b.holds(w.claim(key))
	same(w, "the mark that the next holder finds", t.Mark, want)
	t.leaves()
}
