package drivertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/internal/limit"
)

var historyLaws = []law{
	{"HistoryIsKept", remembers, func(w *world, key string) {
		first, second, other := w.entry(key, 1), w.entry(key, 2), w.entry(w.key(), 3)
		second.Note = "\"quoted\", \\u0000 \\ and 统计 \u2028"
		second.Ended, second.End, second.Reason = first.Granted.Add(time.Second), "broken", "it hung for long"
		second.Broken, second.BrokenBy, second.BrokenFor = second.Ended, "an operator", "it hung"
		second.Lost, second.Kind, second.Permits = 7, "permits", 3
		w.a.records(ample, first, second, other)
		w.b.remembers(key, 10, second, first)
		w.b.remembers(key, 1, second)
		w.b.remembers(other.Key, 10, other)
		w.b.remembers(w.key(), 10)
	}, "an operator asks who held a lock, in whatever process"},
	{"HistoryMerges", remembers, func(w *world, key string) {
		begun, next := w.entry(key, 1), w.entry(key, 2)
		w.a.records(ample, begun, next)
		end := record.Entry{Key: key, Token: begun.Token, Ended: begun.Granted.Add(time.Second), End: "released"}
		w.b.records(ample, end)
		w.b.records(ample, end) // its answer was lost
		whole := begun
		whole.Merge(end)
		w.a.remembers(key, 10, next, whole)
	}, "the end of a grant is written later than its beginning, and perhaps by another process"},
	{"HistoryIsBoundedByCount", remembers, func(w *world, key string) {
		var all []record.Entry
		for i := range 12 {
			all = append(all, w.entry(key, int64(i)))
			w.a.records(record.Bounds{Keep: 3, For: time.Hour}, all[i])
		}
		slices.Reverse(all)
		w.b.remembers(key, 3, all[:3]...)
		n := len(w.b.history(key, 100))
		w.wrongIf(n > 6, "the history of a key has %d grants; want the last 3, and 6 at most", n)
	}, "a lock that is taken often must not fill the store"},
	{"HistoryIsBoundedByAge", remembers, func(w *world, key string) {
		brief := record.Bounds{Keep: 100, For: time.Second}
		for i := range int64(3) { // the key is in use all the time
			w.a.records(brief, w.entry(key, i))
			w.until(time.Now().Add(3 * brief.For / 4))
		}
		young := w.entry(key, 3)
		w.a.records(brief, young)
		es := w.b.history(key, 10)
		w.wrongIf(len(es) == 0 || es[0].Token != young.Token || es[len(es)-1].Token < young.Token-1,
			"with an age of %v the history is %s; want the last of four, and none from before the third",
			brief.For, entryTexts(es))
	}, "nobody wants to keep forever who held a lock"},
	{"HistoryHasAnyKey", remembers, func(w *world, key string) {
		for i, name := range []string{key + "\x00\xff{}'\"", key + strings.Repeat("k", limit.Key-len(key))} {
			e := w.entry(name, int64(i))
			w.a.records(ample, e)
			w.b.remembers(name, 10, e)
		}
	}, "a key may be any bytes"},
	{"HistoryIsNoLine", remembers, func(w *world, key string) {
		w.a.records(ample, w.entry(key, 1))
		w.b.empty(key)
		w.lists(w.prefix, nil)
		w.b.holds(w.claim(key)).leaves()
	}, "what is remembered of a lock must not look like the lock"},
}

func remembers(b driver.Backend, _ config) bool { return is[record.Store](b) }

// ample are bounds that forget nothing.
var ample = record.Bounds{Keep: 1000, For: time.Hour}

// entry is a grant of key that has not ended, with a token that is larger for a larger n.
func (w *world) entry(key string, n int64) record.Entry {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return record.Entry{
		Key: key, Token: 1_900_000_000_000_000 + n, Owner: "somebody@somewhere", Note: fmt.Sprint("note ", n),
		Kind: "exclusive", Asked: now.Add(-time.Second), Granted: now,
	}
}

func (v *view) records(keep record.Bounds, es ...record.Entry) {
	v.w.must("Record", v.Backend.(record.Store).Record(v.w.ctx, es, keep))
}

func (v *view) history(key string, n int) []record.Entry {
	es, err := v.Backend.(record.Store).History(v.w.ctx, key, n)
	v.w.must("History", err)
	return es
}

// remembers checks the last n grants of key.
func (v *view) remembers(key string, n int, want ...record.Entry) {
	same(v.w, fmt.Sprintf("the last %d grants of %q", n, key), entryTexts(v.history(key, n)), entryTexts(want))
}

// entryTexts writes entries so that they can be compared.
func entryTexts(es []record.Entry) string {
	var b strings.Builder
	for _, e := range es {
		text, err := json.Marshal(e)
		fmt.Fprintln(&b, e.Key, string(text), err)
	}
	return b.String()
}
