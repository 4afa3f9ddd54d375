package drivertest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

// manyWaiters is how many writers in line overflow a sum of 32 bits: 2048 times
// RW is 2^31.
const manyWaiters = 2048 + 52

var limitLaws = []law{
	//verify:fault The API, on all stores | leases of zero, negative, of a nanosecond, huge
	{"ShortestAndLongestLease", nil, func(w *world, _ string) {
		for _, ttl := range []time.Duration{w.info.MinTTL, w.info.MaxTTL} {
			t, err := w.a.try(lasting(w.claim(w.key()), ttl))
			if late := t.answered.Sub(t.sent) > ttl*9/10; late && !errors.Is(err, driver.ErrPermanent) {
				continue // the lease may have been over by then
			}
			if err != nil || !t.Granted {
				w.t.Errorf("Enter with a lease of %v: granted %v, error %v", ttl, t.Granted, err)
				continue
			}
			err = t.renew()
			w.wrongIf(err != nil && !(driver.Gone(err) && ttl == w.info.MinTTL),
				"Renew with a lease of %v: %v", ttl, err)
		}
	}, "the core sends nothing outside of MinTTL and MaxTTL, and everything inside"},
	{"LongestLeaseLasts", nil, func(w *world, key string) {
		c := lasting(w.claim(key), w.info.MaxTTL)
		t := w.a.holds(c)
		w.wrongIf(!w.info.SharedLease && (t.Left < c.TTL*9/10 || t.Left > c.TTL),
			"a lease of %v has %v left", c.TTL, t.Left)
		w.b.refused(w.claim(c.Key))
		left := t.stillThere().Left
		w.wrongIf(left <= 0, "a lease of %v is shown with %v left", c.TTL, left)
		t.leaves()
		w.b.empty(c.Key)
	}, "a duration that overflows in the store ends at once, or never"},
	{"LongestTombstone", nil, func(w *world, key string) {
		c := lasting(w.claim(key), w.info.MaxTTL)
		w.a.entomb(c)
		w.a.keptOut(c)
	}, "the same for the tombstone of a claim with the longest lease"},
	{"TextIsKept", nil, func(w *world, _ string) {
		for _, text := range [][3]string{ // owner, note and trace
			{"", "", ""},
			{"", "", "a trace"},
			{"", "a note", ""},
			{fill("o", limit.Owner), fill("n", limit.Note), fill("t", limit.Owner)},
			{fill("☂", limit.Owner), fill("é", limit.Note), fill("轨", limit.Owner)},
			{" spaces ", "tab\tnewline\nreturn\resc\x1b[31m\x1funit", "\x1funit "},
			{`'"` + "`" + `\;--%_{}[]$1?:`, `{"json": [1, "two"]}`, `' "$1`},
			{"1e3", "007", "5 12345 x"},
		} {
			c := w.claim(w.key())
			c.Owner, c.Note, c.Trace = text[0], text[1], text[2]
			s := w.a.holds(c).stillThere()
			same(w, "owner, note and trace as shown", [3]string{s.Owner, s.Note, s.Trace}, text)
			busy := w.b.refused(w.claim(c.Key))
			same(w, "owner, note and trace as a refusal has them", [3]string{busy.Owner, busy.Note, busy.Trace}, text)
		}
	}, "they are written by one person for another: cut, folded or mangled they mislead"},
	{"LargestSemaphore", fair, func(w *world, key string) {
		const size = driver.RW - 1
		w.a.holds(w.slots(key, size-1, size))
		w.b.refused(w.slots(key, 2, size))
		w.b.holds(w.slots(key, 1, size))
		w.a.refused(w.slots(key, 1, size))
		w.a.refused(w.slots(key, size, size))

		one := w.key()
		t := w.a.holds(w.slots(one, 1, 1))
		w.b.refused(w.slots(one, 1, 1))
		t.leaves()
		w.b.holds(w.slots(one, 1, 1))
	}, "sizes go up to one below RW, and weights up to the size"},
	{"HugeSums", all(fair, long), func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		ts := w.enterMany(manyWaiters, func() driver.Claim { return w.claim(key) })
		if slices.ContainsFunc(ts, func(t *inLine) bool { return t.Granted }) {
			w.t.Fatalf("a claim was granted behind the holder, with %d in line", len(ts))
		}
		w.b.refused(w.reader(key))
		last := w.b.waits(w.reader(key))
		w.wrongIf(last.Ahead < 1, "the last in a line of %d has %d ahead", len(ts)+2, last.Ahead)
		for i, s := range w.b.line(key).Claims {
			w.wrongIf(s.Granted != (i == 0), "place %d of a line of writers is shown with granted %v", i, s.Granted)
		}
		w.each(len(ts), func(i int) {
			err := ts[i].leave()
			w.wrongIf(err != nil, "Leave of a waiter: %v", err)
		})
		holder.stillHolds()
		last.stillWaits()
		holder.leaves()
		last.granted()
	}, "two thousand writers in line weigh more than 2^31: a sum that wraps around lets everybody in"},
}

// fill repeats s as often as fits n bytes.
func fill(s string, n int) string { return strings.Repeat(s, n/len(s)) }
