package s3lock

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/swaplock"
)

// lease is a lease object. While it lasts, only the owner of the claim writes it, so a renewal never competes with a
// swap. It lasts for TTL from the time that the store has stamped it with.
type lease struct {
	Key   text                `json:"key"`
	ID    text                `json:"id"`
	Nonce string              `json:"nonce"` // else a renewal would not change an ETag that is a hash
	TTL   driverutil.Duration `json:"ttl"`
	Until time.Time           `json:"until,omitzero"` // and at least until then: a renewal never shortens a lease
	Ended time.Time           `json:"ended,omitzero"` // when it ended for good: it is not renewed any more
}

// readLease reads the lease of ref, and says when it ends.
func (s *store) readLease(
	ctx context.Context, d *document, ref *leaseRef,
) (l lease, o Object, end time.Time, err error) {
	end = d.floor(ref)
	if o, err = s.get(ctx, s.leaseName(ref.Lease)); err != nil || o.ETag == "" {
		return l, o, end, err
	}
	if err = json.Unmarshal(o.Body, &l); err != nil {
		err = driver.Permanent(fmt.Errorf("%s cannot be read: %w", s.leaseName(ref.Lease), err))
	}
	end = driverutil.Later(end, driverutil.Later(l.Until, o.Modified.Add(s.grace+time.Duration(l.TTL))))
	if !l.Ended.IsZero() {
		end = l.Ended
	}
	return l, o, end, err
}

func (s *store) leaseName(name string) string { return s.o.Prefix + "lease/" + name }

func (s *store) writeLease(ctx context.Context, name, etag string, l lease) error {
	l.Nonce = rand.Text()
	body, _ := json.Marshal(l)
	_, err := s.put(ctx, s.leaseName(name), etag, body)
	return err
}

// end ends a lease for good if it has ended by now. The store decides if its owner is about to renew it.
func (s *store) end(ctx context.Context, d *document, ref *leaseRef) (ended bool, err error) {
	l, o, end, err := s.readLease(ctx, d, ref)
	if err != nil || !l.Ended.IsZero() || end.After(o.Date) {
		return !l.Ended.IsZero(), err
	}
	l.Ended = end
	err = s.writeLease(ctx, ref.Lease, o.ETag, l)
	if lost(err) {
		return false, nil
	}
	return err == nil, err
}

// Renew costs a PUT and two GETs for each lease.
func (s *store) Renew(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
	alive, errs := make([]bool, len(ls)), make([]error, len(ls))
	_ = driverutil.Each(len(ls), atOnce, func(i int) (err error) {
		alive[i], err = s.renew(ctx, ls[i])
		errs[i] = s.failed(ctx, err, "renew a lease of", ls[i].Key, true)
		return nil
	})
	for _, err := range errs {
		if err == nil { // a lease with an error is asked for again by itself
			return alive, nil
		}
	}
	return alive, errs[0]
}

func (s *store) renew(ctx context.Context, l swaplock.Lease) (alive bool, err error) {
	for range 20 {
		d, _, err := s.document(ctx, l.Key)
		ref := d.of(l.ID)
		if err != nil || ref == nil {
			return false, err
		}
		was, o, end, err := s.readLease(ctx, &d, ref)
		switch {
		case err != nil || !end.After(o.Date):
			return false, err
		case !end.Before(o.Date.Add(s.grace + l.TTL)):
			return true, nil // another call has renewed it in this very second
		}
		err = s.writeLease(ctx, ref.Lease, o.ETag, lease{d.Key, ref.ID, "", driverutil.Duration(l.TTL), end, was.Ended})
		switch {
		case lost(err) || conflict(err):
			continue
		default:
			return err == nil, err
		}
	}
	return false, errLost
}

// Purge ends those leases for good that have ended by now.
func (s *store) Purge(ctx context.Context, key string, ids []string) error {
	d, _, err := s.document(ctx, key)
	for _, id := range ids {
		if ref := d.of(id); ref != nil && ref.ID != d.Holder {
			_, ends := s.end(ctx, &d, ref)
			err = errors.Join(err, ends)
		}
	}
	return s.failed(ctx, err, "end leases of", key, true)
}
