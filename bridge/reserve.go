package bridge

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

// Reserve reserves tokens in both stores, one request to each. It does nothing if the old store
// does nothing: the next claim of its line may have drawn those tokens already.
func (b *Backend) Reserve(ctx context.Context, t driver.Ticket, span int64) (done bool, err error) {
	c := b.claims.find(&t)
	if c == nil || !c.isHeld() {
		return false, nil
	}
	old, new := b.halves(c, t)
	for _, half := range []struct {
		store
		t    driver.Ticket
		span int64
	}{{b.old, old, spanInOld(&c.Claim, span)}, {b.new, new, span}} {
		r, ok := half.Backend.(driver.Reserver)
		if !ok {
			return false, nil
		}
		if done, err = r.Reserve(ctx, half.t, half.span); err != nil || !done {
			return false, half.failed(err)
		}
	}
	return true, nil
}

func (c *claim) isHeld() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held && !c.over
}
