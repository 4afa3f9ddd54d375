package bridge

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock/driver"
)

// Leave takes the claim out of the new store and then out of the old one. A mark is written to
// both. If a store does not respond, Leave still takes the claim out of the other one, and a
// repeated Leave asks only the store that has not confirmed.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	find := b.claims.find
	if e.Tombstone && !e.IfWaiting {
		find = b.claims.bar
	}
	c := find(&t)
	if c == nil { // it has left, or was not entered here: each store has what it has
		c = &claim{Claim: t.Claim, inNew: present, held: true}
		new, old := b.leave(ctx, c, t, e)
		if driver.Gone(new) {
			return old
		}
		return worse(new, ignoreGone(old))
	}
	new, old := b.leave(ctx, c, t, e)
	err := worse(new, old)
	if err == nil || driver.Gone(err) {
		b.claims.drop(&t.Claim)
	}
	return err
}

// leave returns what the new and the old store answered.
func (b *Backend) leave(ctx context.Context, c *claim, t driver.Ticket, e driver.Exit) (new, old error) {
	held, err := b.isHeld(ctx, c, e)
	if err != nil {
		return b.new.failed(err), nil
	}
	if e.IfWaiting && c.waitsInOld() {
		err := b.leaveLine(ctx, c, t, e)
		return nil, err
	}
	c.setOver(true)
	oldTicket, newTicket := b.halves(c, t)
	new = b.leaveNew(ctx, c, newTicket, e)
	if e.IfWaiting && new != nil && !driver.Gone(new) {
		c.setOver(!errors.Is(new, driver.ErrGranted))
		return new, nil
	}
	// A claim that the old store has granted and the new one has not waits: it writes no mark.
	if !held {
		e.Mark, e.Linger = "", 0
	}
	e.IfWaiting = false
	return new, b.leaveOld(ctx, c, oldTicket, e)
}

// leaveLine is leave with e.IfWaiting for a claim that was not sent to the new store. If the old
// store has granted it, the new store decides whether it waits.
func (b *Backend) leaveLine(ctx context.Context, c *claim, t driver.Ticket, e driver.Exit) error {
	old, _ := b.halves(c, t)
	err := b.leaveOld(ctx, c, old, e)
	if !errors.Is(err, driver.ErrGranted) {
		return err
	}
	d := c.Claim
	d.TTL, d.WaitTTL, d.NoWait = t.TTL, 0, true
	_, err = b.joinNew(ctx, c, d)
	switch {
	case err == nil:
		return driver.ErrGranted
	case !settled(err):
		return b.new.failed(err)
	}
	c.setOver(true)
	if e.Tombstone {
		c.bar()
	}
	e.IfWaiting = false
	return b.leaveOld(ctx, c, old, e)
}

func (b *Backend) leaveNew(ctx context.Context, c *claim, t driver.Ticket, e driver.Exit) error {
	c.mu.Lock()
	inNew, left := c.inNew, c.newLeft
	c.mu.Unlock()
	if inNew == absent || left {
		return nil
	}
	e.Tombstone = e.Tombstone || inNew == unsure // an Enter may still arrive
	err := b.new.Leave(ctx, t, e)
	if err == nil || driver.Gone(err) {
		c.mu.Lock()
		c.newLeft = true
		c.mu.Unlock()
	}
	if inNew == unsure {
		err = ignoreGone(err)
	}
	return b.new.failed(b.new.lost(err))
}

func (b *Backend) leaveOld(ctx context.Context, c *claim, t driver.Ticket, e driver.Exit) error {
	c.mu.Lock()
	left := c.oldLeft
	c.mu.Unlock()
	if left {
		return nil
	}
	err := b.old.Leave(ctx, t, e)
	if err == nil || driver.Gone(err) {
		c.mu.Lock()
		c.oldLeft = true
		c.mu.Unlock()
	}
	return b.old.failed(b.old.lost(err))
}

// isHeld reports whether both stores have granted the claim. It asks the new store if e depends
// on that and the claim may have been granted since the last Await.
func (b *Backend) isHeld(ctx context.Context, c *claim, e driver.Exit) (bool, error) {
	c.mu.Lock()
	held, inNew, token := c.held, c.inNew, c.newToken
	c.mu.Unlock()
	if held || inNew != present || e.Mark == "" && e.Linger == 0 {
		return held, nil
	}
	l, err := b.new.Line(ctx, c.Key)
	for _, s := range l.Claims {
		held = held || s.Token == token && s.Granted
	}
	return held, err
}

// waitsInOld reports whether nothing of the claim was sent to the new store.
func (c *claim) waitsInOld() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inNew == absent
}

func (c *claim) setOver(over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = over
}

// bar keeps the claim out of the new store for good. A repeated Enter that is under way has reset over, and may
// have been granted by the old store right before the claim left.
func (c *claim) bar() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.barred = true
}

func (c *claim) isBarred() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.barred
}

// worse returns the error that says less: an unknown outcome before a claim that is gone, and
// that before nil.
func worse(a, b error) error {
	switch {
	case a == nil || driver.Gone(a) && b != nil && !driver.Gone(b):
		return b
	case b != nil && !driver.Gone(a) && !driver.Gone(b):
		return errors.Join(a, b)
	}
	return a
}

func ignoreGone(err error) error {
	if driver.Gone(err) {
		return nil
	}
	return err
}
