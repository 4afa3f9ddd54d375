package redislock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

// Reserve lengthens the span of t, in one request, for a lock that nobody else wants and
// that was not renewed. Where replicas are to confirm a grant it does nothing: they would
// have to know of the tokens before one of them is given.
func (b *Backend) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	if err := b.ready(ctx); err != nil {
		return false, err
	}
	c := t.Claim
	c.Span = span
	if err := check(&c, b.member); err != nil {
		return false, err
	}
	const doing = "reserving tokens for our claim on"
	if c.Ballot != 0 || b.sender.replicas.known > 0 {
		return false, nil
	}
	st := b.step(reserveScript, c.Key, tag(c.ID), writeSpan(&c, b.channel), b.lasts(c.TTL))
	answer, err := b.sender.run(ctx, st)
	if err != nil {
		return false, failed(ctx, doing, c.Key, err)
	}
	b.sender.recycle(st)
	switch answer {
	case int64(1):
		return true, nil
	case int64(0):
		return false, nil
	}
	return false, unknown(doing, c.Key, answer)
}
