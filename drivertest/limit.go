package drivertest

import (
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// manyWaiters is how many writers in line overflow a sum of 32 bits: 2048 times
// RW is 2^31.
const manyWaiters = 2048 + 52

var limitLaws = []law{
	{
		name: "ShortestAndLongestLease",
		why:  "the core sends nothing outside of MinTTL and MaxTTL, and everything inside",
		check: func(w *world) {
			for _, ttl := range []struct {
				what string
				c    func(c *driver.Claim)
			}{
				{"shortest", func(c *driver.Claim) { c.TTL = w.info.MinTTL }},
				{"longest", func(c *driver.Claim) { c.TTL = w.info.MaxTTL }},
			} {
				var c driver.Claim
				var t driver.Ticket
				var err error
				for range 4 {
					c = w.claim(w.key())
					ttl.c(&c)
					sent := time.Now()
					if t, err = w.try(w.a, c); err == nil || time.Since(sent) < c.TTL*9/10 {
						break
					}
					// The machine was busy for as long as the lease would have lasted.
				}
				if err != nil || !t.Granted {
					w.t.Errorf("Enter with the %s lease, %v: granted %v, error %v", ttl.what, c.TTL, t.Granted, err)
					continue
				}
				if err := w.renewed(w.a, t); err != nil && !(driver.Gone(err) && c.TTL == w.info.MinTTL) {
					w.t.Errorf("Renew with the %s lease, %v: %v", ttl.what, c.TTL, err)
				}
			}
		},
	},
	{
		name: "LongestLeaseLasts",
		why:  "a duration that overflows in the store ends at once, or never",
		check: func(w *world) {
			c := w.claim(w.key())
			c.TTL = w.info.MaxTTL
			t := w.hold(w.a, c)
			if w.info.Lease == driver.PerClaim && (t.Left < c.TTL*9/10 || t.Left > c.TTL) {
				w.t.Errorf("a lease of %v has %v left", c.TTL, t.Left)
			}
			w.refused(w.b, w.claim(c.Key))
			s, _ := w.standing(w.b, t)
			if s.Left <= 0 {
				w.t.Errorf("a lease of %v is shown with %v left", c.TTL, s.Left)
			}
			w.leave(w.a, t, driver.Exit{})
			w.empty(w.b, c.Key)
		},
	},
	{
		name: "LongestTombstone",
		why:  "the same for an id that is laid to rest with the longest lease",
		check: func(w *world) {
			c := w.claim(w.key())
			c.TTL = w.info.MaxTTL
			w.gone("Leave of a claim that has not arrived", w.a.Leave(w.ctx, driver.Ticket{Claim: c}, driver.Exit{}))
			_, err := w.try(w.a, c)
			w.gone("the delayed Enter", err)
		},
	},
	{
		name: "OwnerAndNoteAreKept",
		why:  "they are written by one person for another: cut, folded or mangled they mislead",
		check: func(w *world) {
			for _, text := range []struct{ owner, note string }{
				{"", ""},
				{fill("o", driver.MaxOwner), fill("n", driver.MaxNote)},
				{fill("☂", driver.MaxOwner), fill("é", driver.MaxNote)},
				{" spaces ", "tab\tnewline\nreturn\resc\x1b[31m"},
				{`'"` + "`" + `\;--%_{}[]$1?:`, `{"json": [1, "two"]}`},
				{"1e3", "007"},
			} {
				c := w.claim(w.key())
				c.Owner, c.Note = text.owner, text.note
				t := w.hold(w.a, c)
				s, ok := w.standing(w.b, t)
				if !ok || s.Owner != c.Owner || s.Note != c.Note {
					w.t.Errorf("owner %q and note %q are shown as %q and %q", c.Owner, c.Note, s.Owner, s.Note)
				}
				busy := w.refused(w.b, w.claim(c.Key))
				if busy.Owner != c.Owner || busy.Note != c.Note {
					w.t.Errorf("owner %q and note %q are told to others as %q and %q", c.Owner, c.Note, busy.Owner, busy.Note)
				}
			}
		},
	},
	{
		name: "LargestSemaphore",
		when: semaphore,
		why:  "sizes go up to one below RW, and weights up to the size",
		check: func(w *world) {
			key := w.key()
			const size = driver.RW - 1
			w.hold(w.a, w.slots(key, size-1, size))
			w.refused(w.b, w.slots(key, 2, size))
			w.hold(w.b, w.slots(key, 1, size))
			w.refused(w.a, w.slots(key, 1, size))
			w.refused(w.a, w.slots(key, size, size))

			one := w.key()
			t := w.hold(w.a, w.slots(one, 1, 1))
			w.refused(w.b, w.slots(one, 1, 1))
			w.leave(w.a, t, driver.Exit{})
			w.hold(w.b, w.slots(one, 1, 1))
		},
	},
	{
		name: "HugeSums",
		when: fair,
		why:  "two thousand writers in line weigh more than 2^31: a sum that wraps around lets everybody in",
		check: func(w *world) {
			key := w.key()
			holder := w.hold(w.a, w.claim(key))
			ts := w.enterMany(manyWaiters, func(int) driver.Claim { return w.claim(key) })
			for _, t := range ts {
				if t.Granted {
					w.t.Fatalf("a claim was granted behind the holder, with %d in line", len(ts))
				}
			}
			w.refused(w.b, w.reader(key))
			last := w.wait(w.b, w.reader(key))
			if last.Ahead < 1 {
				w.t.Errorf("the last in a line of %d has %d ahead", len(ts)+2, last.Ahead)
			}
			granted := 0
			for _, s := range w.line(w.b, key).Claims {
				if s.Granted {
					granted++
				}
			}
			if granted != 1 {
				w.t.Errorf("%d claims of a line of writers are granted; want 1", granted)
			}
			w.each(len(ts), func(i int) {
				if err := w.a.Leave(w.ctx, ts[i], driver.Exit{}); err != nil {
					w.t.Errorf("Leave of a waiter: %v", err)
				}
			})
			w.stillHolds(w.b, holder)
			w.stillWaits(w.b, last)
			w.leave(w.a, holder, driver.Exit{})
			w.granted(w.b, last)
		},
	},
}

// fill repeats s as often as fits n bytes.
func fill(s string, n int) string { return strings.Repeat(s, n/len(s)) }
