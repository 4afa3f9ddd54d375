package console

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/httplock/internal/lines"
)

const (
	maxRows      = 200
	refreshEvery = 5 // seconds, for browsers that run no script
)

// state says how fresh a page is.
type state struct {
	Looked time.Time // when what is shown was true; zero: never
	Down   time.Time // since when the store does not answer; zero: it does
	Since  time.Time // since when the history goes back

	DownFor time.Duration // how long the store has not answered, if it does not
}

func stateOf(s *snapshot) state { return state{s.at, s.down, s.since, time.Since(s.down)} }

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
	Lingering   bool
	For         time.Duration
	Left        lease
}

// now shows the keys that are in use.
func (c *Console) now(v *visit) {
	s, _ := c.watch.latest(v.Context())
	prefix := v.URL.Query().Get("prefix")
	p := &nowPage{page: v.page("now.title"), state: stateOf(s), Prefix: prefix, MayLook: v.who.Look != nil}
	p.Refresh, p.Stream = refreshEvery, "live?"+v.URL.RawQuery
	var shown []*line
	for key, l := range s.lines {
		if strings.HasPrefix(key, prefix) && v.who.mayLook(key) {
			shown = append(shown, l)
			p.Waiters += len(l.Waiters)
		}
	}
	slices.SortFunc(shown, func(a, b *line) int { return lines.ByLongestWaiting(&a.Line, &b.Line) })
	p.Keys, p.Cut = len(shown), s.cut
	if len(shown) > maxRows {
		shown, p.Cut = shown[:maxRows], true
	}
	for _, l := range shown {
		p.Rows = append(p.Rows, rowOf(l, s.at))
	}
	v.render(http.StatusOK, "now", p)
}

func rowOf(l *line, at time.Time) nowRow {
	r := nowRow{Key: l.Key, Href: keyHref(l.Key), Waiters: len(l.Waiters)}
	for i, h := range l.Holders {
		switch h.Kind {
		case fencelock.Permits:
			r.Kind, r.Size = "permits", max(r.Size, h.Size)
			r.Taken += h.Permits
		case fencelock.Shared:
			r.Kind = "shared"
		}
		if i == 0 {
			r.Holder = &nowHolder{
				Owner: h.Owner, Note: h.Note, Lingering: h.Lingering, For: since(h.Since, at), Left: l.left(&h),
			}
		}
	}
	r.Others = max(len(l.Holders)-1, 0)
	if len(l.Waiters) > 0 {
		r.Longest = since(l.Waiters[0].Since, at)
	}
	return r
}

// left is what was left of the lease of a claim when the store was looked at.
func (l *line) left(s *fencelock.Standing) lease { return leaseOf(s.Left, l.full[s.ID]) }

func since(t, at time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(at.Sub(t), 0)
}
