package console

import (
	"net/http"
	"slices"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/httplock/internal/lines"
	"github.com/fencelock/fencelock/httplock/internal/watch"
)

const (
	maxRows      = 200
	refreshEvery = 5 // seconds, for browsers that run no script
)

// state says how fresh a page is.
type state struct {
	Looked time.Time // when what is shown was true; zero: never
	Down   time.Time // since when the store cannot be read; zero: it can
	Since  time.Time // since when the history goes back

	DownFor time.Duration // how long the store could not be read, if it cannot
	Trouble string        // the text that says so: down, or down.refuses
}

func stateOf(s *watch.State) state {
	text := "down"
	if s.Refuses {
		text = "down.refuses"
	}
	return state{s.At, s.Down, s.Since, time.Since(s.Down), text}
}

type nowPage struct {
	page
	state
	Prefix  string
	MayLook bool
	Keys    int // that are in use
	Waiters int // on all of them
	Rows    []nowRow
	Cut     bool
}

// nowRow is one key.
type nowRow struct {
	Key, Href string
	Kind      string // "shared", "permits" or empty
	Taken     int64  // permits
	Size      int64
	Holder    *nowHolder // the first one; nil: nobody
	Others    int        // more holders
	Waiters   int
	Longest   time.Duration // that somebody has waited
}

type nowHolder struct {
	Owner, Note string
	Reason      string // of the notice that it was given, or ""
	Lingering   bool
	For         time.Duration
	Left        lease
}

// now shows the keys that are in use.
func (c *Console) now(v *visit) {
	prefix := v.URL.Query().Get("prefix")
	s, _ := c.watch.Latest(v.Context(), v.picks("", prefix))
	p := &nowPage{page: v.page("now.title"), state: stateOf(s), Prefix: prefix, MayLook: v.who.Look != nil}
	p.Refresh, p.Stream = refreshEvery, "live?"+v.URL.RawQuery
	shown := s.Lines
	for _, l := range shown {
		_, waiters := lines.Split(&l.Line)
		p.Waiters += len(waiters)
	}
	slices.SortFunc(shown, func(a, b *watch.Line) int { return lines.ByLongestWaiting(&a.Line, &b.Line) })
	p.Keys, p.Cut = len(shown), s.Cut
	if len(shown) > maxRows {
		shown, p.Cut = shown[:maxRows], true
	}
	for _, l := range shown {
		p.Rows = append(p.Rows, rowOf(l, s.At))
	}
	v.render(http.StatusOK, "now", p)
}

func rowOf(l *watch.Line, at time.Time) nowRow {
	holders, waiters := lines.Split(&l.Line)
	r := nowRow{Key: l.Key, Href: keyHref(l.Key), Waiters: len(waiters)}
	for i, h := range holders {
		switch h.Kind {
		case "permits":
			r.Kind, r.Size = "permits", max(r.Size, h.Size)
			r.Taken += h.Permits
		case "shared":
			r.Kind = "shared"
		}
		if i == 0 {
			r.Holder = &nowHolder{
				Owner: h.Owner, Note: h.Note, Reason: h.Reason, Lingering: h.Lingering,
				For: since(h.Since, at), Left: leftOf(l, &h),
			}
		}
	}
	r.Others = max(len(holders)-1, 0)
	if len(waiters) > 0 {
		r.Longest = since(waiters[0].Since, at)
	}
	return r
}

// leftOf is what was left of the lease of a claim when the store was looked at.
func leftOf(l *watch.Line, s *fencelock.Standing) lease { return leaseOf(s.Left, l.Full[s.ID]) }

func since(t, at time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(at.Sub(t), 0)
}
