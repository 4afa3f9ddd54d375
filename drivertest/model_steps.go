package drivertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
)

func (p *modelRun) enterNew() {
	c := p.draw()
	p.enter(p.add(c, p.views()[1-p.rng.IntN(2)]))
}

func (p *modelRun) enterAgain() {
	x := p.pick()
	l := p.line(x.Key)
	if !slices.Contains(l.claims, x) && x.left && !x.keptOut.After(l.now) {
		return
	}
	if p.info.Fair {
		x.NoWait = p.rng.IntN(2) == 0
	}
	p.enter(x)
}

// enter sends the Enter of x and judges the answer.
func (p *modelRun) enter(x *modelClaim) {
	entered, err := x.view.try(x.Claim)
	t := entered.Ticket
	p.record("Enter %s noWait %v span %d ttl %v: %s", name(x), x.NoWait, x.Span, x.TTL, outcome(t, err))
	l := p.line(x.Key)
	inLine, keptOut := slices.Contains(l.claims, x), x.keptOut.After(l.now)
	switch {
	case inLine && !x.lingering:
		l.renew(x, x.TTL)
		p.wantTicket(t, err, l, x)
		return
	case !inLine && l.otherKind(x) && (errors.Is(err, driver.ErrKind) || !keptOut):
		p.wrongIf(!errors.Is(err, driver.ErrKind), "got %v; want ErrKind", err)
		return
	case inLine || keptOut:
		p.wantGone(err, l, x)
		return
	case x.NoWait && !x.fits(l.claims):
		p.wantBusy(err, l)
		return
	}
	p.wrongIf(err != nil, "got %v; want a ticket", err)
	p.wrongIf(t.Token <= l.last, "token %d is not above %d", t.Token, l.last)
	x.token, x.expires = t.Token, l.now.Add(x.TTL)
	x.left, x.admitted, x.lingering, x.noticed = false, false, false, false
	l.last = max(l.last, t.Token+x.Span-1)
	l.claims = append(l.claims, x)
	l.settle()
	p.wantTicket(t, err, l, x)
}

func (p *modelRun) renewSome() {
	var xs []*modelClaim
	var ts []driver.Ticket
	for range 1 + p.rng.IntN(5) {
		x := p.pick()
		if len(xs) > 0 && x.view.Backend != xs[0].view.Backend {
			continue
		}
		if p.expiry && p.rng.IntN(4) == 0 {
			x.TTL = p.span()
		}
		xs = append(xs, x)
		ts = append(ts, x.ticket())
	}
	errs := xs[0].view.Renew(p.ctx, ts)
	p.wrongIf(len(errs) != len(ts), "Renew of %d tickets answered %d errors", len(ts), len(errs))
	for n, x := range xs {
		p.record("Renew %s ttl %v: %v", name(x), ts[n].TTL, errs[n])
		l := p.line(x.Key)
		if l.place(x) < 0 {
			p.wantGone(errs[n], l, x)
			continue
		}
		if x.noticed {
			p.wantNotice(errs[n], x)
			continue
		}
		p.wrongIf(errs[n] != nil, "got %v; want nil", errs[n])
		l.renew(x, ts[n].TTL)
	}
}

// reserveOne asks for more or fewer tokens. A backend may always do nothing.
func (p *modelRun) reserveOne() {
	x := p.pick()
	r, ok := x.view.Backend.(driver.Reserver)
	if !ok {
		return
	}
	span := min(max(x.Span-50+p.rng.Int64N(400), 1), limit.Span)
	t := x.ticket()
	t.Granted = true
	done, err := r.Reserve(p.ctx, t, span)
	p.record("Reserve %s span %d: %v %v", name(x), span, done, err)
	p.wrongIf(err != nil, "got %v; want nil", err)
	if !done {
		return
	}
	l := p.line(x.Key)
	p.wrongIf(l.place(x) != 0 || len(l.claims) > 1, "it was done, and the claim is not alone in line")
	p.wrongIf(l.last != x.token+x.Span-1, "it was done, and token %d was drawn", l.last)
	x.Span = max(x.Span, span)
	l.last = x.token + x.Span - 1
}

func (p *modelRun) leaveOne() {
	x := p.pick()
	t := x.ticket()
	var e driver.Exit
	l := p.line(x.Key)
	i := slices.Index(l.claims, x)
	if p.info.Fair && p.rng.IntN(3) == 0 {
		e.Mark = fmt.Sprintf("mark %d", p.rng.IntN(1000))
	}
	// What a waiter that lingers would be is not part of the laws.
	if p.info.Linger && p.rng.IntN(4) == 0 && i >= 0 && l.granted(i) {
		e.Linger = p.linger()
	}
	if p.rng.IntN(4) == 0 {
		e.Tombstone = true
	}
	if e.Mark == "" && e.Linger == 0 && p.rng.IntN(4) == 0 {
		e.IfWaiting = true
	}
	p.leave(x, t, e)
}

// leaveUnknown leaves a tombstone for an id that has not arrived.
func (p *modelRun) leaveUnknown() {
	x := p.add(p.draw(), p.a)
	p.leave(x, driver.Ticket{Claim: x.Claim}, driver.Exit{Tombstone: true})
}

func (p *modelRun) leave(x *modelClaim, t driver.Ticket, e driver.Exit) {
	err := x.view.Leave(p.ctx, t, e)
	p.record("Leave %s token %d exit %+v: %v", name(x), t.Token, e, err)
	l := p.line(x.Key)
	i := l.place(x)
	if e.IfWaiting && i >= 0 && l.granted(i) {
		p.wrongIf(!errors.Is(err, driver.ErrGranted), "got %v; want ErrGranted", err)
		return
	}
	if e.Tombstone {
		x.keptOut = driverutil.Later(x.keptOut, l.now.Add(t.TTL))
	}
	x.left = true
	if i < 0 {
		if l.writer != x || err != nil && x.broken.IsZero() {
			p.wantGone(err, l, x)
		}
		return
	}
	p.wrongIf(err != nil, "got %v; want nil", err)
	if e.Mark != "" && x.admitted {
		l.mark, l.writer = max(l.mark, e.Mark), x
	}
	if e.Linger > 0 {
		x.lingering, x.expires = true, l.now.Add(e.Linger)
		return
	}
	l.remove(i)
}

func (p *modelRun) breakOne() {
	x := p.pick()
	noticed := func(c *modelClaim) bool { return c.noticed && p.line(c.Key).place(c) >= 0 }
	if i := slices.IndexFunc(p.known, noticed); i >= 0 && p.rng.IntN(4) > 0 {
		x = p.known[i]
	}
	token := x.token + p.rng.Int64N(x.Span)
	if p.rng.IntN(4) == 0 {
		token = x.token + x.Span + p.rng.Int64N(5)
	}
	how := driver.Break{Reason: fmt.Sprintf("reason %d", len(p.steps))}
	switch p.rng.IntN(6) {
	case 0, 1:
		if p.info.Linger {
			how.Delay = p.linger()
		}
	case 2:
		how.Delay = -1
	}
	if p.rng.IntN(2) == 0 {
		how.Notice = p.linger()
	}
	err := p.b.Break(p.ctx, x.Key, token, how)
	p.record("Break %s token %d delay %v notice %v: %v", name(x), token, how.Delay, how.Notice, err)
	l := p.line(x.Key)
	i := slices.IndexFunc(l.claims, func(c *modelClaim) bool { return token >= c.token && token < c.token+c.Span })
	if i < 0 {
		p.wantGone(err, l, &modelClaim{})
		return
	}
	p.wrongIf(err != nil, "got %v; want nil", err)
	p.broken(l, i, how)
}

// broken has a Break end the claim at i.
func (p *modelRun) broken(l *modelLine, i int, how driver.Break) {
	c := l.claims[i]
	if c.lingering && how.Delay == 0 {
		return
	}
	until := c.expires
	delay := how.Delay
	if delay == 0 && p.info.Linger {
		delay = c.LockDelay
	}
	if c.noticed && !c.lingering && how.Delay > 0 {
		delay = max(delay, c.LockDelay)
	}
	if how.Notice > 0 && l.granted(i) && !c.lingering {
		if !p.info.Linger {
			delay = c.LockDelay // which is only shown
		}
		l.giveNotice(i, how, delay)
		return
	}
	if delay > 0 && l.granted(i) {
		ends := l.now.Add(delay)
		if c.lingering {
			ends = driverutil.Later(ends, c.expires)
		}
		c.lingering, c.expires = true, ends
		until = driverutil.Later(until, c.expires)
	} else {
		l.remove(i)
	}
	c.keptOut = driverutil.Later(c.keptOut, until)
	c.left, c.broken, c.reason = true, until, how.Reason
}

func (p *modelRun) awaitOne() {
	x := p.pick()
	before := p.line(x.Key)
	if i := slices.Index(before.claims, x); i >= 0 && !before.granted(i) && !p.expiry {
		return // it would take a second
	}
	t, err := x.view.Await(p.ctx, x.ticket())
	p.record("Await %s: %s", name(x), outcome(t, err))
	l := p.line(x.Key)
	if l.place(x) < 0 {
		p.wantGone(err, l, x)
		return
	}
	p.wantTicket(t, err, l, x)
}

// wantTicket judges the ticket of a claim in line.
func (p *modelRun) wantTicket(t driver.Ticket, err error, l *modelLine, c *modelClaim) {
	p.wrongIf(err != nil, "got %v; want a ticket", err)
	i := l.place(c)
	p.sound(c.Claim, t)
	p.wrongIf(t.Token != c.token, "got token %d; want its own, %d", t.Token, c.token)
	p.wrongIf(t.Granted != l.granted(i), "granted %v; want %v", t.Granted, l.granted(i))
	if t.Granted {
		// Others may write marks beside a holder that shares the lock.
		p.wrongIf(p.info.Fair && driverutil.Exclusive(&c.Claim) && t.Mark != c.mark,
			"got the mark %q; want %q", t.Mark, c.mark)
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

// wantGone judges a GoneError for c, and its reason while that has to be known.
func (p *modelRun) wantGone(err error, l *modelLine, c *modelClaim) {
	var gone driver.GoneError
	p.wrongIf(!errors.As(err, &gone), "got %v; want GoneError", err)
	p.wrongIf(gone.Broken && c.broken.IsZero(), "got %+v; nobody broke it", gone)
	p.wrongIf(c.broken.After(l.now) && (!gone.Broken || gone.Reason != c.reason),
		"got %+v; want the reason %q", gone, c.reason)
}

// wantNotice judges the answer to Renew of a claim under notice.
func (p *modelRun) wantNotice(err error, c *modelClaim) {
	var gone driver.GoneError
	p.wrongIf(!errors.As(err, &gone) || gone.Left <= 0 || !gone.Broken || gone.Reason != c.reason,
		"got %+v; want a notice with the reason %q", err, c.reason)
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
	p.wrongIf(got.Last != 0 && got.Last < want.last || p.info.Fair && got.Mark != want.mark,
		"line %s has last token %d and mark %q; want %d and %q", name, got.Last, got.Mark, want.last, want.mark)
	for i, s := range got.Claims {
		c := want.claims[i]
		shown := driver.Standing{
			Claim: driver.Claim{
				ID:        driverutil.ShortID(c.ID),
				Owner:     c.Owner,
				Note:      s.Note,
				Trace:     s.Trace,
				LockDelay: c.LockDelay,
				Capacity:  c.Capacity,
				Weight:    c.Weight,
				Span:      c.Span,
			},
			Token:     c.token,
			Granted:   want.granted(i),
			Lingering: c.lingering,
			Since:     s.Since,
			Left:      s.Left,
		}
		if c.noticed && !c.lingering {
			shown.Reason = c.reason
		}
		if c.noticed && !p.info.Linger {
			shown.LockDelay = s.LockDelay // no delay follows
		}
		p.wrongIf(s != shown, "place %d of line %s is %+v; want %+v", i, name, s, shown)
	}
}
