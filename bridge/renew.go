package bridge

import (
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Renew starts the leases of ts again in both stores. A claim that either store has lost is
// gone, and the reason names the store. What is left of it in the other store is removed soon
// after.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	if err := b.ready(ctx); err != nil {
		return slices.Repeat([]error{err}, len(ts))
	}
	cs := make([]*claim, len(ts))
	olds, news := make([]driver.Ticket, len(ts)), make([]driver.Ticket, len(ts))
	for i, t := range ts {
		cs[i] = b.claims.find(&t)
		olds[i], news[i] = b.halves(cs[i], t)
	}
	sent := time.Now()
	errs := b.old.Renew(ctx, olds)
	var both []int // of ts, those that may be in the new store
	for i, c := range cs {
		if c.renewed(errs[i], sent.Add(ts[i].TTL)) {
			both = append(both, i)
		}
		errs[i] = b.old.failed(b.old.lost(errs[i]))
	}
	b.renewNew(ctx, cs, news, both, errs)
	for i, err := range errs {
		if driver.Gone(err) && cs[i] != nil {
			b.giveUp(cs[i], ts[i].TTL)
		}
	}
	return errs
}

// renewed notes err, the answer of the old store to a renewal, and reports whether the new store
// is to be asked too.
func (c *claim) renewed(err error, ends time.Time) bool {
	if c == nil {
		return !driver.Gone(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && ends.After(c.ends) {
		c.ends = ends
	}
	return !driver.Gone(err) && c.inNew != absent
}

// renewNew renews in the new store those of ts that are in both, and adds its answers to errs.
func (b *Backend) renewNew(ctx context.Context, cs []*claim, ts []driver.Ticket, both []int, errs []error) {
	if len(both) == 0 {
		return
	}
	news := make([]driver.Ticket, 0, len(both))
	for _, i := range both {
		news = append(news, ts[i])
	}
	for n, err := range b.new.Renew(ctx, news) {
		i := both[n]
		if err == nil || driver.Gone(err) && cs[i] != nil && !cs[i].isPresent() {
			continue // an Enter without an answer may not have arrived
		}
		if errs[i] == nil || driver.Gone(err) {
			errs[i] = b.new.failed(b.new.lost(err))
		}
	}
}

// giveUpAfter is how long what is left of a lost claim stays in the other store: until its
// holder has been told, and no longer than a tenth of its lease.
const giveUpAfter = time.Second

// giveUp has a claim that one store has lost leave both, soon after its holder was told. In stores
// whose claims share a lease it would otherwise stay for as long as the process runs.
func (b *Backend) giveUp(c *claim, ttl time.Duration) {
	c.mu.Lock()
	already := c.over
	c.over = true
	c.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if already || b.closing.Err() != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(min(ttl/10, giveUpAfter), func() {
		b.mu.Lock()
		_, due := b.timers[timer]
		delete(b.timers, timer)
		b.mu.Unlock()
		if !due || !c.isOver() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), max(ttl, time.Second))
		defer cancel()
		t := driver.Ticket{Claim: c.Claim, Token: 1}
		t.TTL = ttl
		_ = b.Leave(ctx, t, driver.Exit{})
	})
	b.timers[timer] = struct{}{}
}

func (c *claim) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}
