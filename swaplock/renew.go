package swaplock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/line"
)

// Renew starts the leases of ts again, by one Renew of the Store. The first renewal of claims that came
// behind others costs a step more for each key. The errors are in the order of ts.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	var leases []Lease
	var places []int // of leases in ts
	first := map[string][]*firstRenewal{}
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
		if err == nil && len(alive) != len(leases) {
			err = impossible(leases[0].Key, fmt.Sprintf("Renew of %d leases returned %d", len(leases), len(alive)))
		}
	}
	for n, l := range leases {
		i := places[n]
		switch {
		case err != nil:
			errs[i] = b.failed(ctx, err)
		case !alive[n]:
			first[l.Key] = append(first[l.Key], &firstRenewal{Lease: l, token: ts[i].Token, err: &errs[i]})
		}
	}
	keys := slices.Collect(maps.Keys(first))
	_ = driverutil.Each(len(keys), keysAtOnce, func(i int) error {
		b.lend(ctx, keys[i], first[keys[i]])
		return nil
	})
	for _, i := range places {
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
	if !ok || t.Named {
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

// keysAtOnce is of how many keys one Renew lends at a time.
const keysAtOnce = 8

// firstRenewal is that of a claim whose lease is in the document, or in an arrival.
type firstRenewal struct {
	Lease
	token int64
	until time.Duration // when the lease ends if the first try is not lost
	err   *error        // the answer
}

// lend gives claims of key records, by one step, or says why they are gone.
func (b *Backend) lend(ctx context.Context, key string, rs []*firstRenewal) {
	jobs := make([]*job, len(rs))
	for i, r := range rs {
		b.claims.lends(driverutil.Ref(key, r.ID))
		jobs[i] = &job{ctx: ctx, f: r.step, asks: r.asks, after: lendAfter, id: r.ID}
	}
	err := b.begin(key, jobs...)
	for i, r := range rs {
		if *r.err = err; err == nil {
			*r.err = b.wait(jobs[i])
		}
	}
}

// asks is a message for others to do the step.
func (f *firstRenewal) asks() []byte {
	return note(f.ID, message{Lend: text(f.ID), Token: f.token, TTL: driverutil.Duration(f.TTL)})
}

// step gives the claim of f a record.
func (f *firstRenewal) step(r *reading, s *line.Step) error {
	if err := r.missing(f.ID); err != nil {
		return err
	}
	c := r.Find(f.ID)
	if c == nil {
		return r.Gone(s, f.ID)
	}
	if f.until != 0 && c.Expires >= f.until && r.settle(c) != inDocument {
		return nil // others have done it
	}
	err := r.renew(s, c, f.TTL)
	if f.until == 0 {
		f.until = c.Expires
	}
	return err
}
