package fencelock

import (
	"cmp"
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
)

const opAdopt = "adopt"

// Detach ends the lease in this process, without a release: its Context ends with
// ErrDetached, and the lock stays taken for another TTL. The handle is for another process,
// or for a later run of this one. The lease is not renewed until it is adopted, or renewed
// by its handle.
//
// It costs one round trip, or two on etcd. Of a lease with a ClaimID that began just now, it
// costs none where each claim has its own lease, and the lock stays taken for the rest of its
// TTL. While it runs, the lease is not shared: a Reentrant call fails with ErrDetached. After an
// error other than ErrLost the lease is as it was.
//
// ErrInvalid: the backend cannot pass claims between processes (ZooKeeper, a quorum), others
// share the lease, another Detach of it is under way, its key is longer than about 300 bytes, or
// it has a MaxHold, a MinHold, a Progress or a LockDelay, which only its process
// keeps.
func (c *Client) Detach(ctx context.Context, l *Lease) (Handle, error) {
	h, err := c.detach(ctx, l)
	return h, wrap("detach", l.Key(), err)
}

func (c *Client) detach(ctx context.Context, l *Lease) (Handle, error) {
	d, err := c.detacher()
	if err != nil {
		return "", err
	}
	if l.claim.c != c {
		return "", invalid("the lease is one of another Client")
	}
	if err := l.Err(); err != nil {
		return "", err
	}
	h, outlives, err := l.beginDetach()
	if err != nil {
		return "", err
	}
	defer l.root().endDetach()
	text, err := h.write(&c.info.Info)
	if err != nil {
		return "", err
	}
	if outlives {
		return text, l.endDetached()
	}
	c.life.beginWork()
	defer c.life.endWork()
	sent := c.clock.Now()
	call := c.life.renewing.Call(ctx, sent, renewTimeout(h.ticket.TTL))
	err = d.Detach(call, h.ticket)
	call.End()
	if err == nil {
		return text, l.endDetached()
	}
	if driver.Gone(err) {
		l.claim.renewed(l, h.ticket.TTL, sent, err)
	}
	if lost := l.ended(); lost != nil {
		return "", lost
	}
	return "", c.storeError(ctx, err)
}

// detacher returns the backend, if its claims can pass from one process to another.
func (c *Client) detacher() (driver.Detacher, error) {
	d, ok := c.backend.(driver.Detacher)
	switch {
	case !ok:
		return nil, errNotDetached
	case !c.life.open():
		return nil, ErrClosed
	}
	return d, nil
}

// Detached is a lease that was detached, as its handle names it. It is a value to call methods
// on, and costs nothing to make. All methods may be called from many goroutines at once. They
// return ErrInvalid if the handle is not one of this store.
type Detached struct {
	c *Client
	h Handle
}

// Detached returns what can be done with the lease of a handle. It costs no round trip. It
// returns nil if the store cannot pass a lease from one process to another (ZooKeeper, a
// quorum); the methods of a nil Detached return ErrInvalid.
func (c *Client) Detached(h Handle) *Detached {
	if _, ok := c.backend.(driver.Detacher); !ok {
		return nil
	}
	return &Detached{c, h}
}

var errNotDetached = invalid("the store cannot pass a lock to another process: its claims end with their process")

// Adopt returns the lease of a handle. The lock keeps its token and its place, and this
// Client renews it from now on. If several clients adopt one handle, one of them gets the
// lease, and the handle is used up. Adopt costs one round trip.
//
// All bounds of the options count from now. Without TTL the lease has the TTL of the
// Client. The store does not shorten the lease that was detached: if this process dies, the
// key stays taken until the longer one of both has ended. The claim gets a new ID, also if the
// lease was taken with a ClaimID.
//
// Errors: ErrLost if the lease ended, or if another process adopted it; ErrUnavailable if
// the store does not respond within two seconds, or one TTL. After ErrUnavailable the
// outcome is unknown, and Adopt releases in the background what it may have adopted. Adopt
// may then be called again; if the handle is used up, the key is free. The same holds after
// ErrClosed, if the Client was closed meanwhile.
func (d *Detached) Adopt(ctx context.Context, opts ...LeaseOption) (*Lease, error) {
	if d == nil {
		return nil, wrap(opAdopt, "", errNotDetached)
	}
	r := request{op: opAdopt, key: d.h.Key(), takes: adoptTakes, capacity: driver.RW, weight: driver.RW, try: true}
	a := newAcquisition(ctx, d.c, r)
	defer a.free()
	all := make([]Option, len(opts))
	for i, opt := range opts {
		all[i] = opt
	}
	l, err := a.adopt(d.h, all)
	return l, a.refused(err)
}

// adopt gets the lease of a handle: as a try does, with an Adopt in place of the Enter.
func (a *acquisition) adopt(text Handle, opts []Option) (*Lease, error) {
	if _, err := a.c.detacher(); err != nil {
		return nil, err
	}
	h, err := text.read(&a.c.info.Info)
	if err != nil {
		return nil, err
	}
	a.adopts = &h
	a.capacity, a.weight, a.permits = h.ticket.Capacity, h.ticket.Weight, h.ticket.Capacity != driver.RW
	if err := a.prepare(opts); err != nil {
		return nil, err
	}
	return a.lockAlone()
}

func lostHandle(h *handle, err error) error {
	reason := cmp.Or(goneOf(err).Reason, "it has ended, or another process has adopted it")
	return &lossError{kind: ErrBroken, key: h.ticket.Key, token: h.token, detail: reason}
}

// Renew extends the lease to a full TTL without adopting it, and returns how long it lasts at
// least. A ttl of 0 keeps its length. It is for programs that
// only pass handles on. It costs one round trip.
//
// If a Break has given notice, the lease keeps its end, and notice has the Reason and what is left of
// the Notice. Otherwise notice is nil.
//
// Errors: ErrLost if the lease ended or was adopted; ErrUnavailable if the store does not
// respond within a third of the lease, and then it may have been renewed.
func (d *Detached) Renew(ctx context.Context, ttl time.Duration) (left time.Duration, notice *Break, err error) {
	err = d.do("renew", func(c *Client, p *handle) error {
		if ttl > 0 {
			p.ticket.TTL = c.info.clampTTL(ttl)
		}
		sent := c.clock.Now()
		call := c.life.renewing.Call(ctx, sent, renewTimeout(p.ticket.TTL))
		defer call.End()
		lease := p.ticket.TTL
		err := renewOne(call, c.backend, p.ticket)
		gone := goneOf(err)
		switch {
		case gone.Left > 0:
			lease = gone.Left
		case err != nil:
			return p.failure(ctx, c, err)
		}
		left = max(time.Duration(sent+believed(lease)-c.clock.Now()), 0)
		if gone.Left > 0 {
			notice = &Break{Reason: gone.Reason, Notice: left}
		}
		return nil
	})
	return left, notice, err
}

// Release releases the lease. It costs one round trip. After
// ErrUnavailable the outcome is unknown, and it may be called again; ErrLost says that the
// lease had ended before, or that another process has adopted it.
func (d *Detached) Release(ctx context.Context) error {
	return d.do("release", func(c *Client, p *handle) error { return p.leave(ctx, c, driver.Exit{}) })
}

func (p *handle) leave(ctx context.Context, c *Client, e driver.Exit) error {
	e.Tombstone = p.uncertain
	p.ticket.TTL = tombstoneTTL(p.ticket.TTL)
	call := c.life.leaving.Call(ctx, c.clock.Now(), leaveTimeout(p.ticket.TTL))
	defer call.End()
	err := c.backend.Leave(call, p.ticket, e)
	if err == nil && e.Mark != "" {
		err = p.marked(call, c, e.Mark)
	}
	if err != nil {
		return p.failure(ctx, c, err)
	}
	c.events.send(EventHandleReleased, Event{Context: ctx, Key: p.ticket.Key, Standing: Standing{Token: p.token}})
	return nil
}

// marked returns an error if the line has no such mark, nor a later one. A Leave of a claim that has left with an
// earlier mark returns nil, too.
func (p *handle) marked(ctx context.Context, c *Client, m string) error {
	line, err := c.backend.Line(ctx, p.ticket.Key)
	if err == nil && line.Mark < m[:len(markTime)] { // its slot
		err = driver.GoneError{Reason: "it has ended before, and was finished for an earlier slot"}
	}
	return err
}

// Finish releases the lease as Release does, and records in the same step that slot is
// done: Once and Line.Done report that. If a later slot is done already, the record of that
// slot stays. It is for an f of Once that detached its lease, so that another process
// finishes the work. owner names who has done the work; empty stands for Options.Owner. It
// costs two round trips. The error is ErrInvalid if the backend keeps no slots, or if the handle
// is not of an exclusive lease. It is ErrLost as of Release, and if the lease was finished for an
// earlier slot: one lease finishes one slot.
func (d *Detached) Finish(ctx context.Context, slot time.Time, owner string) error {
	return d.do("finish", func(c *Client, p *handle) error {
		if err := cmp.Or(c.info.canOnce(slot), checkText("Owner", owner, limit.Owner)); err != nil {
			return err
		}
		if !driverutil.Exclusive(&p.ticket.Claim) {
			return invalid("only the holder of an exclusive lease can finish a slot")
		}
		mark := writeMark(run{slot, time.Now(), cmp.Or(owner, c.options.Owner)})
		return p.leave(ctx, c, driver.Exit{Mark: mark})
	})
}

// Check returns the claim, with the time that is left of its lease. It
// costs one round trip. The error is ErrLost if the lease ended or was adopted.
func (d *Detached) Check(ctx context.Context) (Standing, error) {
	var found Standing
	err := d.do("check", func(c *Client, p *handle) error {
		line, err := c.Line(ctx, p.ticket.Key)
		if err != nil {
			return err
		}
		for _, s := range line.Claims {
			if s.ID == driverutil.ShortID(p.ticket.ID) && s.HasToken(p.token) && s.Granted && !s.Lingering {
				found = s
				return nil
			}
		}
		return lostHandle(p, nil)
	})
	return found, err
}

func (d *Detached) do(op string, f func(*Client, *handle) error) error {
	if d == nil {
		return wrap(op, "", errNotDetached)
	}
	if !d.c.life.open() {
		return wrap(op, d.h.Key(), ErrClosed)
	}
	p, err := d.h.read(&d.c.info.Info)
	if err != nil {
		return wrap(op, d.h.Key(), err)
	}
	return wrap(op, d.h.Key(), f(d.c, &p))
}

func (p *handle) failure(ctx context.Context, c *Client, err error) error {
	if driver.Gone(err) {
		return lostHandle(p, err)
	}
	return c.storeError(ctx, err)
}
