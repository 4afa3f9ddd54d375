package redislock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

const reserving = "reserving tokens for a claim on"

// Reserve lengthens the span of t, in one request, for a lock that nobody else wants.
// Where replicas confirm grants it does nothing: they would have to know of the tokens
// before one of them is given.
func (b *Backend) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	if err := b.ready(ctx); err != nil {
		return false, err
	}
	c := t.Claim
	c.Span = span
	if err := c.Validate(b.Info()); err != nil {
		return false, err
	}
	if c.Ballot != 0 || b.transport.replicas > 0 {
		return false, nil
	}
	got := b.transport.do(ctx, b.request(reserveScript, c.Key, c.ID, span))
	if got.err != nil {
		return false, b.answered(ctx, reserving, c.Key, got)
	}
	switch got.answer {
	case int64(1):
		return true, nil
	case int64(0):
		return false, nil
	}
	return false, badAnswer(reserving, c.Key, got.answer)
}
