package redislock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

const adopting = "adopting a claim on"

// Detach starts the lease of t again, in one request. A claim in Redis belongs to no process.
func (b *Backend) Detach(ctx context.Context, t driver.Ticket) error {
	return driverutil.InLine(b.Renew(ctx, []driver.Ticket{t})[0])
}

// Adopt gives the claim of t to by, in one request.
func (b *Backend) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	if err := by.Validate(b.Info()); err != nil {
		return driver.Ticket{}, err
	}
	r := b.request(adoptScript, t.Key, t.ID, by.ID, by.TTL.Microseconds(), claimTail(&by, b.process))
	r.durable = true
	got := b.transport.do(ctx, r)
	if got.err != nil {
		return driver.Ticket{}, b.answered(ctx, adopting, t.Key, got)
	}
	adopted, _, ok := parseTicket(by, got.answer)
	if !ok {
		return driver.Ticket{}, refusal(&by, got.answer)
	}
	b.listen()
	return adopted, nil
}
