package drivertest

import (
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

// alike are key endings that some store takes for one another, or for something
// else than bytes.
var alike = []string{
	"", "a", "A", "a ", " a", "a\t", "á", "a\u0301", "ａ", "ä", "a\x00", "a\x00b", "\x00", "\x00\x00",
	"a{b}", "a{c}", "{a}", "{}", "}{", "{", "a}", "a%", "a_", "%", "_", "*", "a*", "a?", "[a]", "[^a]", "a[b]c",
	"a\\", "\\a", "\\x61", "%61", "/", "//", "a/", "a/b", "/a", ".", "..", "../a", "a:b", "a::b", "a|b",
	"a#b", "a$b", "$1", "?1",
	"'", "''", "\"", "`", ";", "--", "a;b", "a,b", "a\nb", "a\r\nb", "\n", "\xff", "\xff\xff",
	"\xfe\xff", "a\x80", "\xc3", "\x7f",
	"0", "00", "+0", "1e3", "1000", "null", "NULL", "true", "ß", "ss", "SS", "ı", "i", "I", "İ", "☂", "🔒",
	"\u200b", "\u202e",
}

var keyLaws = []law{
	//verify:fault The API, on all stores | keys: empty, of a megabyte, binary, with each separator, similar
	{"KeysAreBytes", nil, func(w *world, _ string) {
		var held []*inLine
		for _, end := range alike {
			t, err := w.a.try(noWait(w.claim(w.prefix + end)))
			w.must("Enter while keys that look alike are held", err)
			held = append(held, t)
		}
		for _, t := range held {
			w.b.refused(w.claim(t.Key))
			t.stillThere()
		}
		for i, err := range w.a.renew(held...) {
			w.wrongIf(err != nil, "Renew on key ending %q: %v", alike[i], err)
		}
		for _, t := range held {
			t.leaves()
			w.b.empty(t.Key)
		}
	}, "keys that a store folds, trims, normalises or cuts apart share one lock between strangers"},
	//verify:fault The API, on all stores | keys: empty, of a megabyte, binary, with each separator, similar
	{"EveryByteMayOccur", nil, func(w *world, _ string) {
		var ts []*inLine
		want := map[string]int{}
		for b := range 256 {
			t := w.a.holds(noWait(w.claim(w.prefix + string([]byte{byte(b)}))))
			ts = append(ts, t)
			want[t.Key] = 1
		}
		w.lists(w.prefix, want)
		for _, t := range ts {
			t.leaves()
		}
	}, "a key may be a hash or a struct: no byte of it is special"},
	//verify:fault The API, on all stores | keys: empty, of a megabyte, binary, with each separator, similar
	{"LongestKey", nil, func(w *world, _ string) {
		for _, fill := range []string{"x", "\xff", "\x00", "%", "☂"} {
			long := w.prefix + strings.Repeat(fill, limit.Key)
			one := long[:limit.Key-1] + "1"
			two := long[:limit.Key-1] + "2"
			t := w.a.holds(noWait(w.claim(one)))
			w.b.holds(noWait(w.claim(two)))
			w.b.holds(noWait(w.claim(one[:limit.Key-1])))
			w.b.refused(w.claim(one))
			t.renews()
			var e driver.Exit
			if w.info.Fair {
				e.Mark = "m"
			}
			t.leaves(e)
			w.b.holds(noWait(w.claim(one)))
		}
	}, "a store that cuts long keys makes one lock of two, and one that encodes them may find them too long"},
	{"WaitersWakeOnAnyKey", fair, timed(func(w *world, _ string) {
		for _, end := range []string{"a{b}", "}{", "\x00", "\xff\xfe", "a\nb", "' OR 1=1 --", "☂"} {
			key := w.key() + end
			holder := w.a.holds(w.claim(key))
			next := w.b.waits(w.claim(key))
			w.grants(func() { holder.leaves() }, next)
		}
	}), "a push names a key or a process by text: what is special in that text must not lose the message"},
	//verify:fault The API, on all stores | keys: empty, of a megabyte, binary, with each separator, similar
	{"LinesTakesPrefixesAsBytes", nil, func(w *world, _ string) {
		for _, end := range alike {
			w.a.holds(noWait(w.claim(w.prefix + end)))
		}
		for _, end := range alike {
			want := map[string]int{}
			for _, e := range alike {
				if strings.HasPrefix(e, end) {
					want[w.prefix+e] = 1
				}
			}
			w.lists(w.prefix+end, want)
		}
	}, "a prefix is bytes, not a pattern and not text: people list one tenant's locks and must not see another's"},
}
