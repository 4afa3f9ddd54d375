package drivertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fencelock/fencelock/driver"
)

func (p *modelRun) enterNew() {
	c := p.draw()
	p.enter(p.add(c, p.views()[1-p.rng.IntN(2)]))
}

func (p *modelRun) enterAgain() {
	x := p.pick()
	l := p.line(x.Key)
	_, c := l.find(x.ID)
	if c == nil && x.left && !l.keptOut(x.ID) {
		return
	}
	if p.info.Fair {
		x.NoWait = p.rng.IntN(2) == 0
	}
	p.enter(x)
}

// enter sends the Enter of x and judges the answer.
func (p *modelRun) enter(x *sentClaim) {
	entered, err := x.view.try(x.Claim)
	t := entered.Ticket
	p.record("Enter %s noWait %v span %d ttl %v: %s", name(x.Claim), x.NoWait, x.Span, x.TTL, outcome(t, err))
	l := p.line(x.Key)
	i, c := l.find(x.ID)
	switch {
	case c != nil && !c.lingering:
		c.renew(x.TTL, l.now)
		p.wantTicket(t, err, l, i)
		return
	case c == nil && l.otherKind(x.Claim) && (errors.Is(err, driver.ErrKind) || !l.keptOut(x.ID)):
		p.wrongIf(!errors.Is(err, driver.ErrKind), "got %v; want ErrKind", err)
		return
	case c != nil || l.keptOut(x.ID):
		p.wantGone(err, l, l.tombstones[x.ID])
		return
	case x.NoWait && !l.fits(x.Claim, l.claims):
		p.wantBusy(err, l)
		return
	}
	p.wrongIf(err != nil, "got %v; want a ticket", err)
	p.wrongIf(p.info.Fencing && t.Token <= l.last, "token %d is not above %d", t.Token, l.last)
	x.token, x.left = t.Token, false
	l.last = max(l.last, t.Token+x.Span-1)
	l.claims = append(l.claims, &modelClaim{Claim: x.Claim, token: t.Token, expires: l.now.Add(x.TTL)})
	l.settle()
	p.wantTicket(t, err, l, len(l.claims)-1)
}

func (p *modelRun) renewSome() {
	var xs []*sentClaim
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
		p.record("Renew %s ttl %v: %v", name(x.Claim), ts[n].TTL, errs[n])
		l := p.line(x.Key)
		_, c := l.find(x.ID)
		if c == nil || c.lingering {
			p.wantGone(errs[n], l, l.tombstones[x.ID])
			continue
		}
		p.wrongIf(errs[n] != nil, "got %v; want nil", errs[n])
		c.renew(ts[n].TTL, l.now)
	}
}

// reserveOne asks for more tokens, or for fewer as one who comes late. A backend may always
// do nothing.
func (p *modelRun) reserveOne() {
	x := p.pick()
	r, ok := x.view.Backend.(driver.Reserver)
	if !ok {
		return
	}
	span := min(max(x.Span-50+p.rng.Int64N(400), 1), driver.MaxSpan)
	t := x.ticket()
	t.Granted = true
	done, err := r.Reserve(p.ctx, t, span)
	p.record("Reserve %s span %d: %v %v", name(x.Claim), span, done, err)
	p.wrongIf(err != nil, "got %v; want nil", err)
	if !done {
		return
	}
	l := p.line(x.Key)
	_, c := l.find(x.ID)
	p.wrongIf(c == nil || c.lingering || len(l.claims) > 1, "it was done, and the claim is not alone in line")
	p.wrongIf(l.last != c.token+c.Span-1, "it was done, and token %d was drawn", l.last)
	c.Span = max(c.Span, span)
	x.Span = c.Span
	l.last = c.token + c.Span - 1
}

func (p *modelRun) leaveOne() {
	x := p.pick()
	t := x.ticket()
	var e driver.Exit
	l := p.line(x.Key)
	i, c := l.find(x.ID)
	if p.info.Mark && p.rng.IntN(3) == 0 {
		e.Mark = driver.Mark(fmt.Sprintf("mark %d", len(p.steps)))
	}
	// What a waiter that lingers would be is not part of the laws.
	if p.info.Linger && p.rng.IntN(4) == 0 && c != nil && l.granted(i) {
		e.Linger = p.longest()
		if p.expiry {
			e.Linger = p.span()
		}
	}
	if p.rng.IntN(4) == 0 {
		t.Token = 0
	}
	p.leave(x, t, e)
}

// leaveUnknown leaves a tombstone for an id that has not arrived.
func (p *modelRun) leaveUnknown() {
	x := p.add(p.draw(), p.a)
	p.leave(x, driver.Ticket{Claim: x.Claim}, driver.Exit{})
}

func (p *modelRun) leave(x *sentClaim, t driver.Ticket, e driver.Exit) {
	err := x.view.Leave(p.ctx, t, e)
	p.record("Leave %s token %d exit %+v: %v", name(x.Claim), t.Token, e, err)
	l := p.line(x.Key)
	i, c := l.find(x.ID)
	tombstone := l.tombstones[x.ID]
	if t.Token == 0 {
		l.entomb(x.ID, l.now.Add(t.TTL))
	}
	x.left = true
	if c == nil || c.lingering {
		if l.writer != x.ID || err != nil && tombstone.broken.IsZero() {
			p.wantGone(err, l, tombstone)
		}
		return
	}
	p.wrongIf(err != nil, "got %v; want nil", err)
	if e.Mark != "" && c.admitted {
		l.mark, l.writer = e.Mark, x.ID
	}
	if e.Linger > 0 {
		c.lingering, c.expires = true, l.now.Add(e.Linger)
		return
	}
	l.remove(i)
}

func (p *modelRun) breakOne() {
	x := p.pick()
	token := x.token + p.rng.Int64N(x.Span)
	if p.rng.IntN(4) == 0 {
		token = x.token + x.Span + p.rng.Int64N(5)
	}
	reason := fmt.Sprintf("reason %d", len(p.steps))
	err := p.b.Break(p.ctx, x.Key, token, reason)
	p.record("Break %s token %d: %v", name(x.Claim), token, err)
	l := p.line(x.Key)
	i := slices.IndexFunc(l.claims, func(c *modelClaim) bool { return token >= c.token && token < c.token+c.Span })
	if i < 0 {
		p.wantGone(err, l, modelTombstone{})
		return
	}
	p.wrongIf(err != nil, "got %v; want nil", err)
	c := l.claims[i]
	l.entomb(c.ID, c.expires)
	l.tombstones[c.ID] = modelTombstone{l.tombstones[c.ID].until, c.expires, reason}
	l.remove(i)
	for _, y := range p.known {
		y.left = y.left || y.ID == c.ID
	}
}

func (p *modelRun) awaitOne() {
	x := p.pick()
	before := p.line(x.Key)
	i, c := before.find(x.ID)
	if waits := c != nil && !before.granted(i); waits && !p.expiry {
		return // it would take a second
	}
	t, err := x.view.Await(p.ctx, x.ticket())
	p.record("Await %s: %s", name(x.Claim), outcome(t, err))
	l := p.line(x.Key)
	i, c = l.find(x.ID)
	if c == nil || c.lingering {
		p.wantGone(err, l, l.tombstones[x.ID])
		return
	}
	p.wantTicket(t, err, l, i)
}
