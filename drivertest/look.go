package drivertest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var lookLaws = []law{
	{
		name: "LinesShowTheHolder",
		why:  "people look up who holds a lock, since when, and for how long",
		check: func(w *world) {
			c := w.claim(w.key())
			c.Owner, c.Note, c.Span = "web-3/812", "report for 2030", 7
			t := w.hold(w.a, c)
			l := w.line(w.b, c.Key)
			if len(l.Claims) != 1 {
				w.t.Fatalf("the line shows %d claims; want the holder: %+v", len(l.Claims), l)
			}
			s := l.Claims[0]
			if s.Owner != c.Owner || s.Note != c.Note || s.Capacity != c.Capacity || s.Weight != c.Weight ||
				s.Token != t.Token || s.Span != c.Span || !s.Granted || s.Lingering {
				w.t.Errorf("the holder is shown as %+v; want %+v with token %d", s, c, t.Token)
			}
			if s.Left <= 0 || s.Left > t.TTL+time.Minute {
				w.t.Errorf("the holder is shown with %v left of %v", s.Left, t.TTL)
			}
			if age := time.Since(s.Since); age > time.Hour || age < -time.Hour {
				w.t.Errorf("a holder of a moment ago is shown as granted at %v", s.Since)
			}
			if l.Last != 0 && l.Last < t.Token+c.Span-1 {
				w.t.Errorf("the largest token is shown as %d; want at least %d", l.Last, t.Token+c.Span-1)
			}
		},
	},
	{
		name: "IdsAreCut",
		why:  "the id is the right to leave: shown in full, whoever may look could end a lock in another's name",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			l := w.line(w.b, t.Key)
			if len(l.Claims) != 1 || l.Claims[0].ID != driver.ShortID(t.ID) {
				w.t.Errorf("the line shows %+v; want the id %q", l.Claims, driver.ShortID(t.ID))
			}
		},
	},
	{
		name: "LinesShowClaimsInOrder",
		when: fair,
		why:  "the line is shown as it is: who is next comes first",
		check: func(w *world) {
			key := w.key()
			var want []driver.Ticket
			for i := range 6 {
				c := w.reader(key)
				if i == 2 || i == 4 {
					c = w.claim(key)
				}
				c.Owner = fmt.Sprintf("owner %d", i)
				want = append(want, w.enter([]driver.Backend{w.a, w.b}[i%2], c))
			}
			l := w.line(w.a, key)
			if len(l.Claims) != len(want) {
				w.t.Fatalf("the line shows %d claims; want %d", len(l.Claims), len(want))
			}
			for i, s := range l.Claims {
				if s.Owner != want[i].Owner || s.Token != want[i].Token || s.Weight != want[i].Weight || s.Granted != (i < 2) {
					w.t.Errorf("place %d shows %+v; want %+v, granted %v", i, s, want[i], i < 2)
				}
			}
		},
	},
	{
		name: "SinceIsTheGrant",
		when: fair,
		why:  "held since noon and waiting since noon are different things to whoever decides to break a lock",
		check: func(w *world) {
			key := w.key()
			first := w.hold(w.a, w.claim(key))
			second := w.wait(w.b, w.claim(key))
			w.until(time.Now().Add(settle))
			// A grant on another key says what the store's own clock shows now.
			between := w.hold(w.a, w.claim(w.key()))
			w.leave(w.a, first, driver.Exit{})
			w.granted(w.b, second)
			mid, _ := w.standing(w.b, between)
			s, _ := w.standing(w.b, second)
			if s.Since.Before(mid.Since) {
				w.t.Errorf("a claim that was granted after %v is shown as held since %v", mid.Since, s.Since)
			}
		},
	},
	{
		name: "LinesYieldEachLineOnce",
		why: "a store with many lines is read page by page: a line that falls between two pages is a lock that " +
			"nobody finds",
		check: func(w *world) {
			const n = 300
			ts := w.enterMany(n, func(int) driver.Claim { return w.claim(w.key()) })
			seen := map[string]int{}
			for l, err := range w.b.Lines(w.ctx, w.prefix) {
				if err != nil {
					w.t.Fatalf("Lines: %v", err)
				}
				seen[l.Key]++
			}
			for _, t := range ts {
				if seen[t.Key] != 1 {
					w.t.Errorf("Lines yields %q %d times; want once", t.Key, seen[t.Key])
				}
			}
			if len(seen) != n {
				w.t.Errorf("Lines yields %d lines; want %d", len(seen), n)
			}
		},
	},
	{
		name: "LinesMayBeLeftEarly",
		why:  "whoever has seen enough stops: that must neither fail nor leave a cursor or a connection behind",
		check: func(w *world) {
			for range 10 {
				w.hold(w.a, w.claim(w.key()))
			}
			for range 50 {
				for _, err := range w.b.Lines(w.ctx, w.prefix) {
					if err != nil {
						w.t.Fatalf("Lines: %v", err)
					}
					break
				}
			}
			// The view still works, and may be used while Lines runs.
			for l, err := range w.b.Lines(w.ctx, w.prefix) {
				if err != nil {
					w.t.Fatalf("Lines: %v", err)
				}
				w.refused(w.b, w.claim(l.Key))
			}
		},
	},
	{
		name: "OneLineIsTheSameAsInLines",
		can:  readsOneLine,
		why:  "two ways to look at a line must not show two lines",
		check: func(w *world) {
			reader := w.a.(driver.LineReader)
			key := w.key()
			l, err := reader.Line(w.ctx, key)
			if err != nil || l.Key != key || l.Last != 0 || l.Mark != "" || len(l.Claims) != 0 {
				w.t.Errorf("a line that was never used is %+v, error %v; want an empty one", l, err)
			}
			t := w.hold(w.a, w.claim(key))
			if w.info.Fair {
				w.wait(w.b, w.claim(key))
			}
			l, err = reader.Line(w.ctx, key)
			if err != nil {
				w.t.Fatalf("Line: %v", err)
			}
			other := w.line(w.a, key)
			still(l.Claims)
			still(other.Claims)
			if !reflect.DeepEqual(l, other) {
				w.t.Errorf("Line shows %+v; Lines shows %+v", l, other)
			}
			w.leave(w.a, t, driver.Exit{Mark: mark(w, "kept")})
		},
	},
	{
		name: "EmptyLineRemembersItsMark",
		when: marks,
		can:  readsOneLine,
		why:  "the last finished slot is looked up when nobody is in line",
		check: func(w *world) {
			reader := w.a.(driver.LineReader)
			t := w.hold(w.a, w.claim(w.key()))
			w.leave(w.a, t, driver.Exit{Mark: "done"})
			l, err := reader.Line(w.ctx, t.Key)
			if err != nil || l.Mark != "done" || len(l.Claims) != 0 || l.Last != 0 && l.Last < t.Token {
				w.t.Errorf("the empty line is %+v, error %v; want the mark, and a last token of at least %d", l, err, t.Token)
			}
		},
	},
}

// still takes from cs what may differ from one look to the next.
func still(cs []driver.Standing) {
	for i := range cs {
		cs[i].Left, cs[i].Since = 0, time.Time{}
	}
}
