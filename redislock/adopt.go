package redislock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

const adopting = "adopting a claim on"

// Detach starts the lease of t again, in one request. A claim in Redis belongs to no process.
func (b *Backend) Detach(ctx context.Context, t driver.Ticket) error {
	return b.Renew(ctx, []driver.Ticket{t})[0]
}

// Adopt gives the claim of t to by, in one request.
func (b *Backend) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	if err := by.Validate(b.Info()); err != nil {
		return driver.Ticket{}, err
	}
	epoch := b.subscriber.epoch.Load()
	cmd := b.command(adoptScript, t.Key, prefixed(t.ID), encodeClaim(&by, b.channel))
	cmd.Durable = true
	got := b.transport.Do(ctx, cmd)
	if got.Err != nil {
		return driver.Ticket{}, b.answered(ctx, adopting, t.Key, got)
	}
	adopted, _, ok := parseTicket(by, got.Answer)
	if !ok {
		return driver.Ticket{}, refusal(&t.Claim, got.Answer)
	}
	if epoch == 0 || epoch != b.subscriber.epoch.Load() {
		b.subscriber.alarms.granted(by.ID, by.Key)
	}
	return adopted, nil
}
