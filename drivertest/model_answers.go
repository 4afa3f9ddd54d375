package drivertest

import (
	"errors"

	"github.com/fencelock/fencelock/driver"
)

// wantTicket judges the ticket of a claim in line.
func (p *modelRun) wantTicket(t driver.Ticket, err error, l *modelLine, c *modelClaim) {
	p.wrongIf(err != nil, "got %v; want a ticket", err)
	i := l.place(c)
	p.sound(c.Claim, t)
	p.wrongIf(t.Token != c.token, "got token %d; want its own, %d", t.Token, c.token)
	p.wrongIf(t.Granted != l.granted(i), "granted %v; want %v", t.Granted, l.granted(i))
	p.wrongIf(t.Mixed != l.mixed(c), "mixed %v; want %v", t.Mixed, l.mixed(c))
	if t.Granted {
		// Others may write marks beside a holder that shares the lock.
		p.wrongIf(p.info.Mark && c.Exclusive() && t.Mark != c.mark, "got the mark %q; want %q", t.Mark, c.mark)
		return
	}
	p.wrongIf(t.Ahead != i, "%d ahead; want %d", t.Ahead, i)
	h, head := t.Head, l.claims[0]
	p.wrongIf(h != nil && (h.Owner != head.Owner || h.Token != head.token),
		"the head is %+v; want %q with token %d", h, head.Owner, head.token)
}

// wantBusy judges a refusal.
func (p *modelRun) wantBusy(err error, l *modelLine) {
	var busy *driver.BusyError
	p.wrongIf(!errors.As(err, &busy), "got %v; want a *BusyError", err)
	head := l.claims[0]
	p.wrongIf(busy.Owner != head.Owner || busy.Token != head.token || busy.Ahead != len(l.claims),
		"refused with %+v; want %q, token %d, %d ahead", busy, head.Owner, head.token, len(l.claims))
}

// wantGone judges an ErrGone for c, and its reason while that has to be known.
func (p *modelRun) wantGone(err error, l *modelLine, c *modelClaim) {
	var gone driver.ErrGone
	p.wrongIf(!errors.As(err, &gone), "got %v; want ErrGone", err)
	p.wrongIf(gone.Broken && c.broken.IsZero(), "got %+v; nobody broke it", gone)
	p.wrongIf(c.broken.After(l.now) && (!gone.Broken || gone.Reason != c.reason),
		"got %+v; want the reason %q", gone, c.reason)
}

// compareLines looks at everything there is.
func (p *modelRun) compareLines() {
	seen := map[string]driver.Line{}
	for l, err := range p.b.Lines(p.ctx, p.prefix) {
		p.wrongIf(err != nil, "Lines: %v", err)
		seen[l.Key] = l
	}
	p.record("Lines: %d", len(seen))
	for _, key := range p.lines {
		p.compareLine(seen[key], p.line(key), key[len(key)-2:])
	}
}

func (p *modelRun) compareLine(got driver.Line, want *modelLine, name string) {
	p.wrongIf(len(got.Claims) != len(want.claims),
		"line %s has %d claims; want %d: %+v", name, len(got.Claims), len(want.claims), got.Claims)
	if len(want.claims) == 0 {
		return
	}
	p.wrongIf(got.Last != 0 && got.Last < want.last || p.info.Mark && got.Mark != want.mark,
		"line %s has last token %d and mark %q; want %d and %q", name, got.Last, got.Mark, want.last, want.mark)
	for i, s := range got.Claims {
		c := want.claims[i]
		shown := driver.Standing{
			ID: driver.ShortID(c.ID), Owner: c.Owner, Note: s.Note, Capacity: c.Capacity, Weight: c.Weight,
			Token: c.token, Span: c.Span, Granted: want.granted(i), Lingering: c.lingering,
			Since: s.Since, Left: s.Left,
		}
		p.wrongIf(s != shown, "place %d of line %s is %+v; want %+v", i, name, s, shown)
	}
}
