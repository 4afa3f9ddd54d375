package drivertest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

var lookLaws = []law{
	{"LinesShowTheHolder", nil, func(w *world, key string) {
		c := w.claim(key)
		c.Owner, c.Note, c.Span = "web-3/812", "report for 2030", 7
		c.Trace, c.LockDelay = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", w.info.MinTTL
		t := w.a.holds(c)
		l := w.b.line(c.Key)
		if len(l.Claims) != 1 {
			w.t.Fatalf("the line shows %d claims; want the holder: %+v", len(l.Claims), l)
		}
		s := l.Claims[0]
		same(w, "the holder as shown", s, driver.Standing{
			Claim: driver.Claim{
				ID:        driverutil.ShortID(t.ID),
				Owner:     c.Owner,
				Note:      c.Note,
				Trace:     c.Trace,
				LockDelay: c.LockDelay,
				Capacity:  c.Capacity,
				Weight:    c.Weight,
				Span:      c.Span,
			},
			Token:   t.Token,
			Granted: true,
			Since:   s.Since,
			Left:    s.Left,
		})
		w.wrongIf(s.Left <= 0 || s.Left > t.TTL+time.Minute, "the holder is shown with %v left of %v", s.Left, t.TTL)
		age := time.Since(s.Since)
		w.wrongIf(age > time.Hour || age < -time.Hour, "a holder of a moment ago is shown as granted at %v", s.Since)
		w.wrongIf(l.Last != 0 && l.Last < t.Token+c.Span-1,
			"the largest token is shown as %d; want at least %d", l.Last, t.Token+c.Span-1)
	}, "people look up who holds a lock, since when, and for how long"},
	//verify:fault Security | claim ids are shown as a prefix only
	{"IdsAreCut", nil, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		cs := w.b.line(key).Claims
		w.wrongIf(len(cs) != 1 || cs[0].ID != driverutil.ShortID(t.ID),
			"the line shows %+v; want the id %q", cs, driverutil.ShortID(t.ID))
	}, "the id is the right to leave: shown in full, whoever may look could end a lock in another's name"},
	{"LinesShowClaimsInOrder", fair, func(w *world, key string) {
		var want []*inLine
		for i := range 6 {
			c := w.reader(key)
			if i == 2 || i == 4 {
				c = w.claim(key)
			}
			c.Owner = fmt.Sprintf("owner %d", i)
			want = append(want, w.views()[i%2].enter(c))
		}
		l := w.a.line(key)
		if len(l.Claims) != len(want) {
			w.t.Fatalf("the line shows %d claims; want %d", len(l.Claims), len(want))
		}
		for i, s := range l.Claims {
			x := want[i]
			w.wrongIf(s.Owner != x.Owner || s.Token != x.Token || s.Weight != x.Weight || s.Granted != (i < 2),
				"place %d shows %+v; want %+v, granted %v", i, s, x.Ticket, i < 2)
		}
	}, "the line is shown as it is: who is next comes first"},
	{"SinceIsTheGrant", fair, func(w *world, key string) {
		first := w.a.holds(w.claim(key))
		second := w.b.waits(w.claim(key))
		w.until(time.Now().Add(settle))
		// A grant on another key says what the store's own clock shows now.
		between := w.a.holds(w.claim(w.key()))
		first.leaves()
		second.granted()
		mid, since := between.stillThere().Since, second.stillThere().Since
		w.wrongIf(since.Before(mid), "a claim that was granted after %v is shown as held since %v", mid, since)
	}, "held since noon and waiting since noon are different things to whoever decides to break a lock"},
	{"LinesYieldEachLineOnce", nil, func(w *world, _ string) {
		want := map[string]int{}
		for _, t := range w.enterMany(300, func() driver.Claim { return w.claim(w.key()) }) {
			want[t.Key] = 1
		}
		w.lists(w.prefix, want)
	}, "a store with many lines is read page by page: nobody finds a lock that falls between two pages"},
	{"LinesMayBeLeftEarly", nil, func(w *world, _ string) {
		for range 10 {
			w.a.holds(w.claim(w.key()))
		}
		for range 50 {
			for _, err := range w.b.Lines(w.ctx, w.prefix) {
				w.must("Lines", err)
				break
			}
		}
		// The view still works, and may be used while Lines runs.
		for l, err := range w.b.Lines(w.ctx, w.prefix) {
			w.must("Lines", err)
			w.b.refused(w.claim(l.Key))
		}
	}, "whoever has seen enough stops: that must neither fail nor leave a cursor or a connection behind"},
	{"OneLineIsTheSameAsInLines", nil, func(w *world, key string) {
		l, err := w.a.Line(w.ctx, key)
		w.wrongIf(err != nil || l.Key != key || l.Last != 0 || l.Mark != "" || len(l.Claims) != 0,
			"a line that was never used is %+v, error %v; want an empty one", l, err)
		w.a.holds(w.claim(key))
		if w.info.Fair {
			w.b.waits(w.claim(key))
		}
		l, err = w.a.Line(w.ctx, key)
		w.must("Line", err)
		other := w.a.line(key)
		still(l.Claims)
		still(other.Claims)
		w.wrongIf(!reflect.DeepEqual(l, other), "Line shows %+v; Lines shows %+v", l, other)
	}, "two ways to look at a line must not show two lines"},
	{"EmptyLineRemembersItsMark", fair, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).leaves(driver.Exit{Mark: "done"})
		l, err := w.a.Line(w.ctx, t.Key)
		w.wrongIf(err != nil || l.Mark != "done" || len(l.Claims) != 0 || l.Last != 0 && l.Last < t.Token,
			"the empty line is %+v, error %v; want the mark, and a last token of at least %d", l, err, t.Token)
	}, "the last finished slot is looked up when nobody is in line"},
}

// still takes from cs what may differ from one look to the next.
func still(cs []driver.Standing) {
	for i := range cs {
		cs[i].Left, cs[i].Since = 0, time.Time{}
	}
}
