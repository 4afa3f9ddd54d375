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
	var leases []Lease
	var places []int // of leases in ts
	for i := range ts {
		t := &ts[i]
		if errs[i] = b.lost(t); errs[i] == nil {
			leases, places = append(leases, Lease{t.Key, t.ID, max(t.TTL, line.MinTTL)}), append(places, i)
		}
	}
	err := b.ended(ctx)
	var alive []bool
	if err == nil && len(leases) > 0 {
		alive, err = b.store.Renew(ctx, leases)
	}
	for n, l := range leases {
		i := places[n]
		switch {
		case err != nil:
			errs[i] = b.failed(ctx, err)
		case !alive[n]:
			errs[i] = b.lend(ctx, l, ts[i].Token)
		}
		if gone := b.lost(&ts[i]); gone != nil { // meanwhile
			errs[i] = gone
		}
	}
	for i, err := range errs {
		if driver.Gone(err) {
			b.claims.leave(driverutil.Ref(ts[i].Key, ts[i].ID))
		}
	}
	return errs
}

// lost returns a driver.GoneError if the store in which the claim of t entered is lost. A copy of it may be there,
// with the claim: others may have been granted in the old one since. A claim that is kept by its ID may have
// entered anywhere.
func (b *Backend) lost(t *driver.Ticket) error {
	l, ok := b.store.(Losable)
	if !ok || t.Detached || t.Named {
		return nil
	}
	times, reason := l.Lost()
	if b.claims.outlived(driverutil.Ref(t.Key, t.ID), times) {
		return driver.GoneError{Reason: reason}
	}
	return nil
}

// lendAfter is after how many lost swaps a first renewal becomes a message. All arrivals before a message are taken
// into the document, so few of them may be sent in a long line.
const lendAfter = 10

// lend gives a claim whose lease is in the document, or in an arrival, a record, or says why the claim is gone.
func (b *Backend) lend(ctx context.Context, l Lease, token int64) error {
	other := note(l.ID, message{Lend: text(l.ID), Token: token, TTL: driverutil.Duration(l.TTL)})
	b.claims.lends(driverutil.Ref(l.Key, l.ID))
	for range 10 {
		f := func(r *reading, s *line.Step) error {
			if err := r.missing(l.ID); err != nil {
				return err
			}
			c := r.Find(l.ID)
			switch {
			case c == nil:
				return r.Gone(s, l.ID)
			case r.lent[c]: // by a message
				return nil
			case r.place(c) != inDocument:
				return errMoved
			}
			r.lend(s, c, l.TTL)
			return nil
		}
		err := b.do(l.Key, &job{ctx: ctx, f: f, other: other, after: lendAfter})
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
