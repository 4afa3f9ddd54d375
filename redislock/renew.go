package redislock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

const renewing = "renewing the claim on"

// Renew starts the leases of ts again, in one request for each 256 of them. In a Cluster
// that is so for each master, and each lease needs a call of the script of its own.
// Renew works when the server is out of memory.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	if err := b.ready(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	rs := make([]*request, len(ts))
	for i := range ts {
		rs[i] = b.request(renewScript, ts[i].Key, ts[i].ID, clampTTL(ts[i].TTL).Microseconds())
		rs[i].durable = true
	}
	if len(ts) == 1 { // from this goroutine
		errs[0] = b.done(ctx, renewing, ts[0].Key, b.transport.do(ctx, rs[0]))
		return errs
	}
	b.transport.start(ctx, rs...)
	for i := range ts {
		errs[i] = b.done(ctx, renewing, ts[i].Key, b.transport.wait(ctx, rs[i]))
	}
	return errs
}
