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
// Arriver it costs one request if the lock is free or its line is full; where many claims of this process enter the
// line of a mutex at once, most of them share a step. Else it costs a step; mostly one request if this process has left
// the line empty within ten seconds and nobody has been there since.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := c.Validate(b.info); err != nil {
		return driver.Ticket{}, err
	}
	if err := b.ended(ctx); err != nil {
		return driver.Ticket{}, err
	}
	o, known := b.claims.enter(driverutil.Ref(c.Key, c.ID))
	a := b.arrival(&c)
	var t *driver.Ticket
	err, how := errArrives, joins
	if a != nil && a.Waits {
		how = opens
	}
	if a != nil && a.Full {
		defer b.entering(c.Key, -1)
		if b.entering(c.Key, 1) > few {
			t, err = b.join(ctx, o, &c, a, withOthers)
		}
	}
	for ; errors.Is(err, errArrives); how = joins {
		if t, err = b.arrive(ctx, o, &c, a); t == nil && err == nil {
			t, err = b.join(ctx, o, &c, a, how)
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
	free, unseen := b.claims.guess(c.Key)
	return &Arrival{
		ID: c.ID, Claim: text, Span: c.Span, Capacity: c.Capacity, TTL: c.TTL, WaitTTL: driverutil.Lease(c, false),
		Waits: !c.NoWait, Full: c.Weight == c.Capacity, Free: free, Unseen: unseen, written: &d,
	}
}

// headSoon is after how long a claim that has arrived looks who is first in its line.
const headSoon = 100 * time.Millisecond

// arrive puts c into line by one request, or returns nil.
func (b *Backend) arrive(ctx context.Context, o *own, c *driver.Claim, a *Arrival) (*driver.Ticket, error) {
	if a == nil {
		return nil, nil
	}
	sent := b.claims.clock.Now()
	p, err := b.arriver.Arrive(ctx, c.Key, a)
	if p == nil || err != nil {
		return nil, b.failed(ctx, err)
	}
	if err := p.possible(c.Key); err != nil {
		return nil, err
	}
	t := &driver.Ticket{Claim: *c, Token: p.Token, Granted: p.Granted, Ahead: p.Ahead}
	t.TTL, t.WaitTTL = driverutil.Lease(c, p.Granted), 0
	t.Left = t.TTL
	a.Token, a.At = p.Token, p.At
	st := &State{Version: p.Version, Seen: p.Seen, Lost: p.Lost}
	if p.Granted {
		t.Mark = p.Mark
		st.sent, st.read, st.took, st.Now = sent, p.At, b.claims.clock.Since(sent), p.At
		st.alone, st.Arrivals = true, []Arrival{*a}
		st.Content = Content{
			Last: p.Token + c.Span - 1, Mark: p.Mark, MarkedBy: p.MarkedBy, Holder: c.ID, Expires: p.At.Add(c.TTL),
		}
		b.claims.keep(c.Key, st)
		a = nil
	}
	b.claims.enters(o, t, st, min(p.Open.Sub(p.At), headSoon), a)
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

// joining says what a step does with a claim that could arrive.
type joining int

const (
	joins      joining = iota // puts it into line
	opens                     // opens a long line for it: to join that would read and write all of it
	withOthers                // puts it into line with others, in one swap, or lets it arrive
)

const (
	// few is how many requests of one process and key are under way at once, where a claim needs one of its own: each
	// may take a connection.
	few = 8
	// mostTries is how often others may swap first before a claim arrives that would have gone with others.
	mostTries = 5
)

// entering counts the claims of this process that are about to enter the line of key.
func (b *Backend) entering(key string, more int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.enters[key] + more
	if b.enters[key] = n; n == 0 {
		delete(b.enters, key)
	}
	return n
}

// errArrives says that a claim should arrive by itself.
var errArrives = errors.New("the claim should arrive")

// asks is a message that has others put c into line.
func (b *Backend) asks(c *driver.Claim) []byte {
	if c.NoWait {
		return nil
	}
	d := describe(c, b.node)
	d.After = c.After
	return note(c.ID, message{Enter: &d})
}

// join puts c into line by a step, or, where swaps come too late, has it arrive and looks whether it
// waits. It returns errArrives if c should arrive by itself.
func (b *Backend) join(
	ctx context.Context, o *own, c *driver.Claim, a *Arrival, how joining,
) (*driver.Ticket, error) {
	var t driver.Ticket
	var seen *reading
	tries := 0
	f := func(r *reading, s *line.Step) error {
		tries++
		switch {
		case how == opens && r.opensFor(c):
			r.opens = true
			return errArrives
		case how == withOthers && (tries > mostTries || len(r.Claims) >= mostJobs):
			return errArrives
		case r.More:
			return errPart
		}
		own, err := r.Find(c.ID), error(nil)
		if own != nil && r.appended { // by the message, or by another Enter with this ID
			err = driverutil.CheckFound(c.Capacity, c.Weight, own.Capacity, own.Weight)
		} else {
			own, err = r.Enter(s, *c)
		}
		if err == nil {
			own.Node = b.node
			seen, t = r, r.Ticket(s, own)
		}
		return err
	}
	j := &job{ctx: ctx, f: f, id: c.ID}
	if how != withOthers {
		j.asks = func() []byte { return b.asks(c) }
	}
	if a == nil {
		j.recalls = enters
	}
	if err := b.do(c.Key, j); err != nil {
		return nil, err
	}
	b.claims.enters(o, &t, &seen.State, seen.quiet(), nil)
	return &t, nil
}
