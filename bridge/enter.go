package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

var errLate = errors.New("bridge: the lease in the old store has ended before the new store was asked")

var errLeft = driver.GoneError{Reason: "it has left"}

// Enter joins the line of the old store and, if that grants the claim, the line of the new one.
// A free lock costs one request to each. A claim that does not wait and that the new store
// refuses leaves the old store again, which costs one more.
func (b *Backend) Enter(ctx context.Context, d driver.Claim) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	if err := d.Validate(b.info); err != nil {
		return driver.Ticket{}, err
	}
	c, isNew := b.claims.open(&d)
	c.setOver(false) // here, and not when the old store has answered: a Leave may have begun meanwhile
	t, err := b.enterOld(ctx, c, d)
	switch {
	case err == nil && !t.Granted:
		t.Head = unmarked(t.Head)
		return t, nil
	case err == nil && !time.Now().Before(c.end()):
		return driver.Ticket{}, errLate
	case err == nil:
		return b.enterNew(ctx, c, d, t)
	case isNew && settled(err):
		b.claims.abandon(&d)
	case driver.Gone(err):
		b.giveUp(c, d.TTL)
	}
	return driver.Ticket{}, b.old.failed(err)
}

// settled reports whether err says that an Enter has left nothing.
func settled(err error) bool {
	return driver.Gone(err) || errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrKind) ||
		errors.As(err, new(*driver.BusyError))
}

// enterOld enters the old store. Its ticket is that of the Claim d.
func (b *Backend) enterOld(ctx context.Context, c *claim, d driver.Claim) (driver.Ticket, error) {
	owner := d.Owner
	d.Span, d.Owner = spanInOld(&d, c.Span), marked(owner)
	sent := time.Now()
	t, err := b.old.Enter(ctx, d)
	if err != nil {
		return t, err
	}
	t.Owner = owner
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = t.Token
	c.grantedByOldLocked(&t)
	c.ends = sent.Add(t.Left)
	t.Span, t.After = c.Span, c.After
	t.Token = max(t.Token, c.newToken)
	return t, nil
}

// grantedByOldLocked notes a ticket of the old store that may be granted.
func (c *claim) grantedByOldLocked(t *driver.Ticket) {
	if t.Granted {
		c.inOld, c.mark = true, max(c.mark, t.Mark)
	}
}

// enterNew enters the new store with a claim that the old store has granted with the ticket t.
// If the new store refuses the claim, it leaves the old store.
func (b *Backend) enterNew(ctx context.Context, c *claim, d driver.Claim, t driver.Ticket) (driver.Ticket, error) {
	got, err := b.joinNew(ctx, c, d)
	if err == nil {
		got.Claim, got.Head = d, unmarked(got.Head)
		got.Span, got.TTL, got.WaitTTL = c.Span, min(got.TTL, t.TTL), 0
		return got, nil
	}
	if !settled(err) && !errors.Is(err, driver.ErrReused) {
		return driver.Ticket{}, b.new.failed(err)
	}
	// The core sends no Leave after a refusal.
	old, _ := b.halves(c, t)
	if left := b.old.Leave(ctx, old, driver.Exit{}); left != nil && !driver.Gone(left) {
		return driver.Ticket{}, b.old.failed(driverutil.Unsettled(left))
	}
	b.claims.abandon(&d)
	return driver.Ticket{}, b.new.failed(err)
}

// joinNew enters the new store, with a lease that ends no earlier than that of the old store.
// The claim must have been granted by the old store.
func (b *Backend) joinNew(ctx context.Context, c *claim, d driver.Claim) (driver.Ticket, error) {
	c.mu.Lock()
	if c.over || c.barred {
		c.mu.Unlock()
		return driver.Ticket{}, errLeft
	}
	// From here on a Leave writes a tombstone in the new store: what was sent may arrive late.
	was := c.inNew
	c.inNew = max(was, unsure)
	d.Span, d.Owner = c.Span, marked(d.Owner)
	if !tokenless(b.old.Backend) {
		d.After = max(c.token-1, 1)
	}
	c.mu.Unlock()
	sent := time.Now()
	t, err := b.new.Enter(ctx, d)
	if err == nil {
		err = b.raiseOld(ctx, c, t.Token+d.Span-1)
	} else if settled(err) && was == absent {
		c.mu.Lock()
		c.inNew = absent
		c.mu.Unlock()
	}
	if err != nil {
		return t, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inNew, c.newToken = present, t.Token
	c.joinLocked(&t)
	t.Left = min(t.Left, c.ends.Sub(sent))
	return t, nil
}

// raiseOld has the old store number above last, the last token of the claim c in the new store. Otherwise the tokens
// would fall on the way back from a new store whose clock is ahead. A claim that follows last joins the old line
// behind c and leaves it. It costs two requests, once for each move ahead.
func (b *Backend) raiseOld(ctx context.Context, c *claim, last int64) error {
	c.mu.Lock()
	behind := last > max(c.token+spanInOld(&c.Claim, c.Span)-1, c.raised)
	c.mu.Unlock()
	if !behind || !b.old.Info().After {
		return nil
	}
	d := driver.Claim{
		Key: c.Key, ID: rand.Text(), Owner: marked(c.Owner), Capacity: c.Capacity, Weight: c.Weight,
		TTL: max(b.old.Info().MinTTL, time.Second), Span: 1, After: max(last-1, 1),
	}
	t, err := b.old.Enter(ctx, d)
	if err != nil {
		return b.old.failed(driverutil.Unsettled(err))
	}
	_ = b.old.Leave(ctx, t, driver.Exit{}) // it ends by itself if this fails
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raised = last
	return nil
}

// joinLocked makes a ticket of the new store that of the claim.
func (c *claim) joinLocked(t *driver.Ticket) {
	c.held = t.Granted
	if t.Granted {
		t.Mark = max(t.Mark, c.mark)
	}
}

// Await waits in the line of the old store until that grants the claim, joins the line of the
// new store, and from then on waits there.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.closing, cancel)()
	got, err := b.await(ctx, t)
	if err != nil && b.closing.Err() != nil {
		err = driver.ErrClosed
	}
	return got, err
}

func (b *Backend) await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	c := b.claims.find(&t)
	old, new := b.halves(c, t)
	if c == nil || c.asksOld() {
		got, err := b.old.Await(ctx, old)
		if err != nil || !got.Granted {
			got.Claim, got.Head = t.Claim, unmarked(got.Head)
			return got, b.old.failed(b.old.lost(err))
		}
		if c == nil {
			return b.new.Await(ctx, new)
		}
		c.mu.Lock()
		c.grantedByOldLocked(&got)
		c.mu.Unlock()
	}
	got, err := b.awaitNew(ctx, c, t, new)
	if err != nil {
		if driver.Gone(err) {
			b.giveUp(c, t.TTL)
		}
		return driver.Ticket{}, b.new.failed(b.new.lost(err))
	}
	got.Claim, got.Head = t.Claim, unmarked(got.Head)
	return got, nil
}

// awaitNew joins the line of the new store, or waits in it.
func (b *Backend) awaitNew(ctx context.Context, c *claim, t, new driver.Ticket) (driver.Ticket, error) {
	if !c.isPresent() {
		d := c.Claim
		d.NoWait, d.WaitTTL = false, 0
		// Both halves end together if nobody renews them.
		d.TTL = min(max(time.Until(c.end()), b.info.MinTTL, time.Millisecond), t.TTL)
		return b.joinNew(ctx, c, d)
	}
	got, err := b.new.Await(ctx, new)
	if err != nil {
		return got, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joinLocked(&got)
	got.Token = c.newToken
	return got, nil
}

// halves returns the tickets of a claim, which may be nil, as the two stores have it.
func (b *Backend) halves(c *claim, t driver.Ticket) (old, new driver.Ticket) {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	return c.halvesLocked(t)
}

// asksOld reports whether the old store decides what becomes of the claim: it has not granted the
// claim, or it may have lost the claim since. A program that was stopped must not draw a token in
// the new store for a claim that others have followed.
func (c *claim) asksOld() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.inOld || c.over || c.inNew != present && !time.Now().Before(c.ends)
}

func (c *claim) isPresent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inNew == present
}

func (c *claim) end() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ends
}
