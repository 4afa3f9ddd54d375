package swaplock

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/line"
)

// Enter joins the line of c.Key, or finds the claim with c.ID there and starts its lease again. In a store that is an
// Arriver it costs one request if the lock is free or its line is full. Else it costs a step; one request if this
// process has left the line empty within ten seconds and nobody has been there since.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := c.Validate(b.info); err != nil {
		return driver.Ticket{}, err
	}
	if err := b.ended(ctx); err != nil {
		return driver.Ticket{}, err
	}
	o, known := b.claims.enter(driverutil.Ref(c.Key, c.ID))
	a := b.arrival(&c)
	if a != nil {
		a.Behind = b.claims.others(c.Key)
	}
	t, err := b.arrive(ctx, o, &c, a)
	if err == nil && t == nil {
		t, err = b.join(ctx, o, &c, a, a != nil && a.Waits)
	}
	if errors.Is(err, errOpens) {
		a.Blind = false
		if t, err = b.arrive(ctx, o, &c, a); err == nil && t == nil {
			t, err = b.join(ctx, o, &c, a, false)
		}
	}
	if err != nil {
		if !known {
			b.claims.leave(driverutil.Ref(c.Key, c.ID))
		}
		return driver.Ticket{}, err
	}
	return *t, nil
}

// arrival returns what c sends to an Arriver, or nil if c cannot arrive.
func (b *Backend) arrival(c *driver.Claim) *Arrival {
	if b.arriver == nil || !plain(c.ID) || c.After > 0 { // an arrival's token is above the clock
		return nil
	}
	d := describe(c, b.node)
	text, err := json.Marshal(&d)
	if err != nil {
		return nil
	}
	return &Arrival{
		ID: c.ID, Claim: text, Span: c.Span, Capacity: c.Capacity, TTL: c.TTL, WaitTTL: driverutil.Lease(c, false),
		Waits: !c.NoWait, Full: c.Weight == c.Capacity, written: &d,
	}
}

// headSoon is after how long a claim that has arrived looks who is first in its line.
const headSoon = 100 * time.Millisecond

// arrive puts c into line by one request, or returns nil.
func (b *Backend) arrive(ctx context.Context, o *own, c *driver.Claim, a *Arrival) (*driver.Ticket, error) {
	if a == nil {
		return nil, nil
	}
	p, err := b.arriver.Arrive(ctx, c.Key, a)
	if p == nil || err != nil {
		return nil, b.failed(ctx, err)
	}
	t := &driver.Ticket{Claim: *c, Token: p.Token, Granted: p.Granted, Ahead: p.Ahead}
	t.TTL, t.WaitTTL = driverutil.Lease(c, p.Granted), 0
	t.Left = t.TTL
	b.claims.enters(o, t, &State{Version: p.Version, Lost: p.Lost}, min(p.Open.Sub(p.At), headSoon))
	a.Token, a.At = p.Token, p.At
	if !p.Granted {
		b.claims.waits(o, a)
	} else {
		t.Mark = string(p.Mark)
		b.claims.knows(o, &State{
			alone: true, Version: p.Version, Now: p.At, Lost: p.Lost, Arrivals: []Arrival{*a},
			Content: Content{
				Last: p.Token + c.Span - 1, Mark: p.Mark, MarkedBy: p.MarkedBy, Holder: c.ID, Expires: p.At.Add(c.TTL),
			},
		})
	}
	return t, nil
}

// plain reports whether id is the same in every spelling of JSON, and of a store.
func plain(id string) bool {
	for _, b := range []byte(id) {
		if (b < '0' || b > '9') && (b < 'A' || b > 'Z') && (b < 'a' || b > 'z') {
			return false
		}
	}
	return true
}

// errOpens says that a claim may arrive now.
var errOpens = errors.New("the line is open")

// asks returns what has others put c into line: a if it is there, which joins blindly, else a message.
func (b *Backend) asks(c *driver.Claim, a *Arrival) *Arrival {
	switch {
	case a != nil:
		a.Blind = true
		return a
	case c.NoWait:
		return nil
	}
	d := describe(c, b.node)
	d.After = c.After
	return note(c.ID, message{Enter: &d})
}

// join puts c into line by a step, or, where swaps come too late, has it arrive and looks whether it
// waits. If it mayOpen a long line, it does, and returns errOpens: to join it would read and write all of it.
func (b *Backend) join(
	ctx context.Context, o *own, c *driver.Claim, a *Arrival, mayOpen bool,
) (*driver.Ticket, error) {
	other := b.asks(c, a)
	for {
		var t driver.Ticket
		var found bool // with a lease that the store renews
		var seen *reading
		f := func(r *reading, s *line.Step) error {
			switch {
			case mayOpen && r.opensFor(c):
				r.opens = true
				return errOpens
			case r.More:
				return errPart
			}
			own := r.Find(c.ID)
			if found = own != nil && r.place(own) != inDocument; found {
				seen, t = r, r.Ticket(s, own)
				t.TTL = driverutil.Lease(c, own.Granted)
				return driverutil.CheckFound(c.Capacity, c.Weight, own.Capacity, own.Weight)
			}
			var err error
			if own == nil || !r.appended {
				own, err = r.Enter(s, *c)
			} else { // by the message or the arrival, or by another Enter with this ID
				err = driverutil.CheckFound(c.Capacity, c.Weight, own.Capacity, own.Weight)
			}
			if err == nil {
				own.Node = b.node
				seen, t = r, r.Ticket(s, own)
			}
			return err
		}
		err := b.once(ctx, c.Key, b.left(c.Key), f)
		if errors.Is(err, errPart) {
			err = b.do(c.Key, &job{ctx: ctx, f: f, other: other, id: c.ID})
		}
		if err != nil {
			return nil, err
		}
		b.claims.enters(o, &t, &seen.State, seen.quiet())
		if !found {
			return &t, nil
		}
		alive, err := b.store.Renew(ctx, []Lease{{c.Key, c.ID, t.TTL}})
		if err != nil || alive[0] {
			t.Left = max(t.Left, t.TTL)
			return &t, b.failed(ctx, err)
		}
	}
}
