package sqllock

import (
	"context"
	"sync/atomic"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// manySteps is how many steps are under way when free locks begin to go in batches.
const manySteps = 4

// batching is the store on PostgreSQL. While many steps are under way, one statement takes many
// free locks, and another gives many up (ADR 19 has what that gains). What a batch leaves alone
// goes by a step of its own.
type batching struct {
	*server
	under          atomic.Int64 // steps under way, without batches
	enters, leaves *batcher
}

func newBatching(s *server) *batching {
	b := &batching{server: s}
	b.enters = &batcher{ctx: s.ctx, send: func(ctx context.Context, calls []*batched) {
		b.sendFree(ctx, "enter the lines of some locks", "enter_free", calls,
			texts(calls, func(c *batched) string { return c.ref.Key }),
			texts(calls, func(c *batched) string { return c.ref.ID }),
			numbers(calls, func(c *batched) int64 { return c.claim.Capacity }),
			numbers(calls, func(c *batched) int64 { return c.claim.Weight }),
			numbers(calls, func(c *batched) int64 { return c.claim.TTL.Microseconds() }),
			numbers(calls, func(c *batched) int64 { return c.claim.Span }),
			texts(calls, func(c *batched) string { return c.claim.Owner }),
			texts(calls, func(c *batched) string { return c.claim.Note }), b.node)
	}}
	b.leaves = &batcher{ctx: s.ctx, send: func(ctx context.Context, calls []*batched) {
		b.sendFree(ctx, "leave the lines of some locks", "leave_free", calls,
			texts(calls, func(c *batched) string { return c.ref.Key }),
			texts(calls, func(c *batched) string { return c.ref.ID }))
	}}
	return b
}

func (b *batching) close() {
	b.enters.close()
	b.leaves.close()
	b.server.close()
}

// call counts the steps that are under way.
func (b *batching) call(ctx context.Context, what, key string, into sink, step string, args ...any,
) (broke bool, err error) {
	b.under.Add(1)
	defer b.under.Add(-1)
	return b.server.call(ctx, what, key, into, step, args...)
}

// inBatches reports whether a call goes in a batch, rather than by itself.
func (b *batching) inBatches() bool {
	return b.under.Load() >= manySteps || b.enters.busy() || b.leaves.busy()
}

// enterFree takes a free lock in a batch.
func (b *batching) enterFree(ctx context.Context, c *driver.Claim) (t driver.Ticket, done bool, err error) {
	if !b.inBatches() {
		return t, false, nil
	}
	one := &batched{ctx: ctx, ref: driverutil.ClaimRef{Key: c.Key, ID: c.ID}, claim: c}
	if err := b.enters.join(one); err != nil || !one.found {
		return t, false, err
	}
	t, err = one.answer.entered(c)
	return t, true, err
}

// leaveFree gives up a lock that nobody waits for in a batch.
func (b *batching) leaveFree(ctx context.Context, t *driver.Ticket) (done bool, err error) {
	if !b.inBatches() {
		return false, nil
	}
	one := &batched{ctx: ctx, ref: driverutil.ClaimRef{Key: t.Key, ID: t.ID}}
	switch err := b.leaves.join(one); {
	case err != nil || one.found:
		return err == nil, err
	case one.answer.broke:
		return false, one.answer.unknown()
	}
	return false, nil
}

// sendFree sends a batch. If its outcome is unknown, so is that of each call.
func (b *batching) sendFree(ctx context.Context, what, step string, calls []*batched, args ...any) {
	into := batchAnswers{}
	for _, c := range calls {
		c.answer = answer{store: b.name, ref: c.ref}
		into[c.ref] = c
	}
	broke, err := b.server.call(ctx, what, "", into, step, args...)
	for _, c := range calls {
		c.err, c.answer.broke = err, broke
	}
}

// batchAnswers takes the rows of a batch, each of which names its claim.
type batchAnswers map[driverutil.ClaimRef]*batched

func (a batchAnswers) begin() {
	for _, c := range a {
		c.answer.begin()
		c.found = false
	}
}

func (a batchAnswers) add(r *row) error {
	c := a[driverutil.ClaimRef{Key: r.key, ID: r.id}]
	if c == nil {
		return errShort
	}
	c.found = true
	return c.answer.add(r)
}
