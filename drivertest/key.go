package drivertest

import (
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// alike are key endings that some store takes for one another, or for something
// else than bytes.
var alike = []string{
	"", "a", "A", "a ", " a", "a\t", "á", "a\u0301", "ａ", "ä", "a\x00", "a\x00b", "\x00", "\x00\x00",
	"a{b}", "a{c}", "{a}", "{}", "}{", "{", "a}", "a%", "a_", "%", "_", "*", "a*", "a?", "[a]", "[^a]", "a[b]c",
	"a\\", "\\a", "\\x61", "%61", "/", "//", "a/", "a/b", "/a", ".", "..", "../a", "a:b", "a::b", "a|b", "a#b", "a$b", "$1", "?1",
	"'", "''", "\"", "`", ";", "--", "a;b", "a,b", "a\nb", "a\r\nb", "\n", "\xff", "\xff\xff", "\xfe\xff", "a\x80", "\xc3", "\x7f",
	"0", "00", "+0", "1e3", "1000", "null", "NULL", "true", "ß", "ss", "SS", "ı", "i", "I", "İ", "☂", "🔒", "\u200b", "\u202e",
}

var keyLaws = []law{
	{
		name: "KeysAreBytes",
		why: "keys that a store folds, trims, normalises or cuts apart become one lock: two strangers would " +
			"wait for each other, or a reader of one be refused by another",
		check: func(w *world) {
			held := map[string]driver.Ticket{}
			for _, end := range alike {
				t, err := w.try(w.a, noWait(w.claim(w.prefix+end)))
				if err != nil {
					w.t.Fatalf("Enter on key ending %q while other keys are held: %v", end, err)
				}
				held[end] = t
			}
			for _, end := range alike {
				w.refused(w.b, w.claim(w.prefix+end))
				if _, ok := w.standing(w.b, held[end]); !ok {
					w.t.Errorf("Lines does not find the key ending %q", end)
				}
			}
			if errs := w.a.Renew(w.ctx, inOrder(alike, held)); len(errs) != len(alike) {
				w.t.Errorf("Renew of %d tickets answered %d errors", len(alike), len(errs))
			} else {
				for i, err := range errs {
					if err != nil {
						w.t.Errorf("Renew on key ending %q: %v", alike[i], err)
					}
				}
			}
			for _, end := range alike {
				w.leave(w.a, held[end], driver.Exit{})
				w.empty(w.b, w.prefix+end)
			}
		},
	},
	{
		name: "EveryByteMayOccur",
		why:  "a key may be a hash or a struct: no byte of it is special",
		check: func(w *world) {
			var ts []driver.Ticket
			for b := range 256 {
				ts = append(ts, w.hold(w.a, noWait(w.claim(w.prefix+string([]byte{byte(b)})))))
			}
			seen := map[string]int{}
			for l, err := range w.b.Lines(w.ctx, w.prefix) {
				if err != nil {
					w.t.Fatalf("Lines: %v", err)
				}
				seen[l.Key]++
			}
			for b, t := range ts {
				if seen[t.Key] != 1 {
					w.t.Errorf("Lines yields the key with byte %#x %d times; want once", b, seen[t.Key])
				}
				w.leave(w.a, t, driver.Exit{})
			}
		},
	},
	{
		name: "LongestKey",
		why:  "a store that cuts long keys makes one lock of two, and one that encodes them may find them too long",
		check: func(w *world) {
			for _, fill := range []string{"x", "\xff", "\x00", "%", "☂"} {
				long := w.prefix + strings.Repeat(fill, driver.MaxKey)
				one := long[:driver.MaxKey-1] + "1"
				two := long[:driver.MaxKey-1] + "2"
				t := w.hold(w.a, noWait(w.claim(one)))
				w.hold(w.b, noWait(w.claim(two)))
				w.hold(w.b, noWait(w.claim(one[:driver.MaxKey-1])))
				w.refused(w.b, w.claim(one))
				if err := w.renewed(w.a, t); err != nil {
					w.t.Errorf("Renew on the longest key: %v", err)
				}
				w.leave(w.a, t, driver.Exit{Mark: mark(w, "m")})
				w.hold(w.b, noWait(w.claim(one)))
			}
		},
	},
	{
		name: "WaitersWakeOnAnyKey",
		when: fair,
		why:  "a push names a key or a process by text: what is special in that text must not lose the message",
		check: func(w *world) {
			w.prompted(func() (late string) {
				for _, end := range []string{"a{b}", "}{", "\x00", "\xff\xfe", "a\nb", "' OR 1=1 --", "☂"} {
					key := w.key() + end
					holder := w.hold(w.a, w.claim(key))
					next := w.wait(w.b, w.claim(key))
					l := w.grants(func() { w.leave(w.a, holder, driver.Exit{}) }, waiter{w.b, next})
					if l != "" {
						late = l
					}
				}
				return late
			})
		},
	},
	{
		name: "LinesTakesPrefixesAsBytes",
		why: "a prefix is bytes, not a pattern and not text: people list one tenant's locks and must not see " +
			"another's",
		check: func(w *world) {
			for _, end := range alike {
				w.hold(w.a, noWait(w.claim(w.prefix+end)))
			}
			for _, end := range alike {
				want := map[string]bool{}
				for _, e := range alike {
					if strings.HasPrefix(e, end) {
						want[w.prefix+e] = true
					}
				}
				for l, err := range w.b.Lines(w.ctx, w.prefix+end) {
					if err != nil {
						w.t.Fatalf("Lines with prefix ending %q: %v", end, err)
					}
					if !want[l.Key] {
						w.t.Errorf("Lines with prefix ending %q yields key %q once too often", end, l.Key)
					}
					delete(want, l.Key)
				}
				for key := range want {
					w.t.Errorf("Lines with prefix ending %q does not yield key %q", end, key)
				}
			}
		},
	},
}

// inOrder lists tickets in the order of their key endings.
func inOrder(ends []string, held map[string]driver.Ticket) []driver.Ticket {
	var ts []driver.Ticket
	for _, end := range ends {
		ts = append(ts, held[end])
	}
	return ts
}

// mark is m where marks are kept.
func mark(w *world, m driver.Mark) driver.Mark {
	if w.info.Mark {
		return m
	}
	return ""
}
