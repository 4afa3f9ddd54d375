package drivertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

func (p *modelRun) renewSome() {
	var xs []*sentClaim
	var ts []driver.Ticket
	view := p.a
	for range 1 + p.rng.IntN(5) {
		x := p.pick()
		if len(xs) == 0 {
			view = x.view
		}
		if x.view.Backend != view.Backend {
			continue
		}
		if p.expiry && p.rng.IntN(4) == 0 {
			x.TTL = p.span()
		}
		xs = append(xs, x)
		ts = append(ts, driver.Ticket{Claim: x.Claim, Token: max(x.token, 1)})
	}
	errs := view.Renew(p.ctx, ts)
	now := time.Now()
	if len(errs) != len(ts) {
		p.wrong("Renew of %d tickets answered %d errors", len(ts), len(errs))
	}
	for n, x := range xs {
		p.record("Renew %s ttl %v: %v", name(x.Claim), ts[n].TTL, errs[n])
		l := p.model.line(x.Key, now)
		_, c := l.find(x.ID)
		if c == nil || c.lingering {
			p.wantGone(errs[n], l.tombstones[x.ID], now)
			continue
		}
		if errs[n] != nil {
			p.wrong("got %v; want nil", errs[n])
		}
		c.renew(ts[n].TTL, now)
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
	done, err := r.Reserve(p.ctx, driver.Ticket{Claim: x.Claim, Token: max(x.token, 1), Granted: true}, span)
	p.record("Reserve %s span %d: %v %v", name(x.Claim), span, done, err)
	l := p.model.line(x.Key, time.Now())
	_, c := l.find(x.ID)
	switch {
	case err != nil:
		p.wrong("got %v; want nil", err)
	case !done:
		return
	case c == nil || c.lingering || len(l.claims) > 1:
		p.wrong("it was done, and the claim is not alone in line")
	case l.last != c.token+c.Span-1:
		p.wrong("it was done, and token %d was drawn", l.last)
	}
	c.Span = max(c.Span, span)
	x.Span = c.Span
	l.last = c.token + c.Span - 1
}

func (p *modelRun) leaveOne() {
	x := p.pick()
	t := driver.Ticket{Claim: x.Claim, Token: max(x.token, 1)}
	var e driver.Exit
	i, c := p.model.line(x.Key, time.Now()).find(x.ID)
	if p.info.Mark && p.rng.IntN(3) == 0 {
		e.Mark = driver.Mark(fmt.Sprintf("mark %d", len(p.steps)))
	}
	// What a waiter that lingers would be is not part of the laws.
	if p.info.Linger && p.rng.IntN(4) == 0 && c != nil && p.model.line(x.Key, time.Now()).granted(i) {
		e.Linger = min(longLease, p.info.MaxTTL)
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
	x := &sentClaim{Claim: p.draw(), view: p.a}
	p.known = append(p.known, x)
	p.leave(x, driver.Ticket{Claim: x.Claim}, driver.Exit{})
}

func (p *modelRun) leave(x *sentClaim, t driver.Ticket, e driver.Exit) {
	err := x.view.Leave(p.ctx, t, e)
	now := time.Now()
	p.record("Leave %s token %d exit %+v: %v", name(x.Claim), t.Token, e, err)
	l := p.model.line(x.Key, now)
	i, c := l.find(x.ID)
	tombstone := l.tombstones[x.ID]
	if t.Token == 0 {
		l.putTombstone(x.ID, now.Add(t.TTL))
	}
	x.left = true
	if c == nil || c.lingering {
		if l.writer == x.ID && (err == nil || tombstone != nil && !tombstone.broken.IsZero()) {
			return
		}
		p.wantGone(err, tombstone, now)
		return
	}
	if err != nil {
		p.wrong("got %v; want nil", err)
	}
	if e.Mark != "" && c.admitted {
		l.mark, l.writer = e.Mark, x.ID
	}
	if e.Linger > 0 {
		c.lingering, c.expires = true, now.Add(e.Linger)
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
	now := time.Now()
	p.record("Break %s token %d: %v", name(x.Claim), token, err)
	l := p.model.line(x.Key, now)
	i := slices.IndexFunc(l.claims, func(c *modelClaim) bool { return token >= c.token && token < c.token+c.Span })
	if i < 0 {
		p.wantGone(err, nil, now)
		return
	}
	if err != nil {
		p.wrong("got %v; want nil", err)
	}
	c := l.claims[i]
	tombstone := l.putTombstone(c.ID, c.expires)
	tombstone.broken, tombstone.reason = c.expires, reason
	l.remove(i)
	for _, y := range p.known {
		y.left = y.left || y.ID == c.ID
	}
}

func (p *modelRun) awaitOne() {
	x := p.pick()
	before := p.model.line(x.Key, time.Now())
	i, c := before.find(x.ID)
	if waits := c != nil && !before.granted(i); waits && !p.expiry {
		return // it would take a second
	}
	t, err := x.view.Await(p.ctx, driver.Ticket{Claim: x.Claim, Token: max(x.token, 1)})
	now := time.Now()
	p.record("Await %s: %s", name(x.Claim), outcome(t, err))
	l := p.model.line(x.Key, now)
	i, c = l.find(x.ID)
	if c == nil || c.lingering {
		p.wantGone(err, l.tombstones[x.ID], now)
		return
	}
	p.wantTicket(t, err, l, i)
}
