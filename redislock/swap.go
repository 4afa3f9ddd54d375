package redislock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

// Swap puts c in the place of t, in one request, for a lock that nobody else wants and that
// was not renewed. Where replicas are to confirm a grant it does nothing: one that has to be
// taken back could not be, when t has left already.
func (b *Backend) Swap(ctx context.Context, t driver.Ticket, c driver.Claim) (driver.Ticket, bool, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, false, err
	}
	if err := check(&c, b.member); err != nil {
		return driver.Ticket{}, false, err
	}
	const doing = "putting another claim in the place of ours on"
	if c.Ballot != 0 || b.sender.replicas.known > 0 {
		return driver.Ticket{}, false, nil
	}
	st := b.step(swapScript, c.Key, tag(t.ID), b.call(), writeClaim(&c, b.channel), b.lasts(c.TTL))
	epoch := b.ear.epoch.Load()
	answer, err := b.sender.run(ctx, st)
	if err != nil {
		return driver.Ticket{}, false, failed(ctx, doing, c.Key, err)
	}
	b.sender.recycle(st)
	switch answer {
	case "r":
		return driver.Ticket{}, false, nil
	case "e":
		n, err := b.enter(ctx, c, false)
		return n, err == nil, err
	}
	n, _, ok := ticket(c, answer)
	if !ok {
		return driver.Ticket{}, false, unknown(doing, c.Key, answer)
	}
	b.waits.forget(t.ID)
	b.ear.disregard(t.ID)
	b.ear.heed(c.ID, c.Key, epoch)
	return n, true, nil
}
