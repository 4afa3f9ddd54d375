package drivertest

import (
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// wantTicket judges the ticket of the claim at place i.
func (p *modelRun) wantTicket(t driver.Ticket, err error, l *modelLine, i int) {
	if err != nil {
		p.wrong("got %v; want a ticket", err)
	}
	c := l.claims[i]
	p.sound(c.Claim, t)
	if t.Token != c.token {
		p.wrong("got token %d; want its own, %d", t.Token, c.token)
	}
	if t.Granted != l.granted(i) {
		p.wrong("granted %v; want %v", t.Granted, l.granted(i))
	}
	if t.Mixed != l.mixed(c) {
		p.wrong("mixed %v; want %v", t.Mixed, l.mixed(c))
	}
	if t.Granted {
		// Others may write marks beside a holder that shares the lock.
		if p.info.Mark && c.Exclusive() && t.Mark != c.mark {
			p.wrong("got the mark %q; want %q", t.Mark, c.mark)
		}
		return
	}
	if t.Ahead != i {
		p.wrong("%d ahead; want %d", t.Ahead, i)
	}
	if h := t.Head; h != nil && (h.Owner != l.claims[0].Owner || h.Token != l.claims[0].token) {
		p.wrong("the head is %+v; want %q with token %d", h, l.claims[0].Owner, l.claims[0].token)
	}
}

// wantBusy judges a refusal.
func (p *modelRun) wantBusy(err error, l *modelLine) {
	var busy *driver.BusyError
	if !errors.As(err, &busy) {
		p.wrong("got %v; want a *BusyError", err)
	}
	head := l.claims[0]
	if busy.Owner != head.Owner || busy.Token != head.token || busy.Ahead != len(l.claims) {
		p.wrong("refused with %+v; want %q, token %d, %d ahead", busy, head.Owner, head.token, len(l.claims))
	}
}

// wantGone judges an ErrGone, and its reason while that has to be known.
func (p *modelRun) wantGone(err error, tombstone *modelTombstone, now time.Time) {
	var gone driver.ErrGone
	if !errors.As(err, &gone) {
		p.wrong("got %v; want ErrGone", err)
	}
	switch {
	case tombstone == nil || tombstone.broken.IsZero():
		if gone.Broken {
			p.wrong("got %+v; nobody broke it", gone)
		}
	case tombstone.broken.After(now):
		if !gone.Broken || gone.Reason != tombstone.reason {
			p.wrong("got %+v; want the reason %q", gone, tombstone.reason)
		}
	}
}

// compareLines looks at everything there is.
func (p *modelRun) compareLines() {
	seen := map[string]driver.Line{}
	for l, err := range p.b.Lines(p.ctx, p.prefix) {
		if err != nil {
			p.wrong("Lines: %v", err)
		}
		seen[l.Key] = l
	}
	now := time.Now()
	p.record("Lines: %d", len(seen))
	for _, key := range p.lines {
		p.compareLine(seen[key], p.model.line(key, now), key[len(key)-2:])
	}
}

func (p *modelRun) compareLine(got driver.Line, want *modelLine, name string) {
	if len(got.Claims) != len(want.claims) {
		p.wrong("line %s has %d claims; want %d: %+v", name, len(got.Claims), len(want.claims), got.Claims)
	}
	if len(want.claims) == 0 {
		return
	}
	if got.Last != 0 && got.Last < want.last || p.info.Mark && got.Mark != want.mark {
		p.wrong("line %s has last token %d and mark %q; want %d and %q",
			name, got.Last, got.Mark, want.last, want.mark)
	}
	for i, s := range got.Claims {
		c := want.claims[i]
		shown := driver.Standing{
			ID: driver.ShortID(c.ID), Owner: c.Owner, Note: s.Note, Capacity: c.Capacity, Weight: c.Weight,
			Token: c.token, Span: c.Span, Granted: want.granted(i), Lingering: c.lingering,
			Since: s.Since, Left: s.Left,
		}
		if s != shown {
			p.wrong("place %d of line %s is %+v; want %+v", i, name, s, shown)
		}
	}
}
