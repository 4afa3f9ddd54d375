package redislock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock/internal/transport"
)

const renewing = "renewing the claim on"

// Renew starts the leases of ts again, in one request for each 200 of them. In a Cluster
// that is so for each master, and each lease needs a call of the script of its own, unless
// the Prefix has a hash tag. Renew works when the server is out of memory.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	if err := b.ready(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	cmds := make([]*transport.Command, len(ts))
	var lease any // as text; most leases are alike
	for i := range ts {
		if i == 0 || ts[i].TTL != ts[i-1].TTL {
			lease = encodeLease(clampTTL(ts[i].TTL))
		}
		cmds[i] = b.command(renewScript, ts[i].Key, prefixed(ts[i].ID), lease)
		cmds[i].Durable = true
	}
	if len(ts) == 1 { // BenchmarkRenewInLine takes 98 µs, and 127 µs as below
		errs[0] = b.done(ctx, renewing, ts[0].Key, b.transport.Do(ctx, cmds[0]))
		return errs
	}
	b.transport.Start(ctx, cmds...)
	for i := range ts {
		errs[i] = b.done(ctx, renewing, ts[i].Key, b.transport.Wait(ctx, cmds[i]))
	}
	return errs
}
