package swaplock

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/line"
)

// errMoved says that another call has moved the lease that was to be renewed.
var errMoved = errors.New("the lease has moved")

// Renew starts the leases of ts again, in one request. The first renewal of a claim that came
// behind others costs a step more.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	leases := make([]Lease, len(ts))
	for i, t := range ts {
		leases[i] = Lease{t.Key, t.ID, max(t.TTL, line.MinTTL)}
	}
	err := b.ended(ctx)
	var alive []bool
	if err == nil {
		alive, err = b.store.Renew(ctx, leases)
	}
	for i, l := range leases {
		switch {
		case err != nil:
			errs[i] = b.failed(ctx, err)
		case !alive[i]:
			if errs[i] = b.lend(ctx, l, ts[i].Token); driver.Gone(errs[i]) {
				b.claims.leave(driverutil.Ref(ts[i].Key, ts[i].ID))
			}
		}
	}
	return errs
}

// lend gives a claim whose lease is in the document a record, or says why the claim is gone.
func (b *Backend) lend(ctx context.Context, l Lease, token int64) error {
	other := note(l.ID, message{Lend: text(l.ID), Token: token, TTL: duration(l.TTL)})
	for range 10 {
		err := b.stepOr(ctx, l.Key, other, func(r *reading, s *line.Step) error {
			if err := r.missing(l.ID); err != nil {
				return err
			}
			c := r.Find(l.ID)
			switch {
			case c == nil:
				return r.Gone(s, l.ID)
			case r.lent[c]: // by a message
				return nil
			case r.origins[c].place != inDocument:
				return errMoved
			}
			r.lend(s, c, l.TTL)
			return nil
		})
		if !errors.Is(err, errMoved) {
			return err
		}
		alive, err := b.store.Renew(ctx, []Lease{l})
		if err != nil || alive[0] {
			return b.failed(ctx, err)
		}
	}
	return errMoved
}
