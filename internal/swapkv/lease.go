package swapkv

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
	Nonce string              `json:"nonce"` // else a renewal would not change a version that is a hash
	TTL   driverutil.Duration `json:"ttl,omitempty"`
	Until time.Time           `json:"until"`           // and at least until then: a renewal never shortens a lease
	Ended bool                `json:"ended,omitempty"` // at Until, for good: it is not renewed any more
}

// readLease reads the object of ref, and says when the lease ends.
func (s *Store) readLease(
	ctx context.Context, name string, ref *leaseRef,
) (l lease, o Object, end time.Time, err error) {
	if o, err = s.get(ctx, name); err != nil {
		return l, o, end, err
	}
	l, end, err = s.parseLease(name, o)
	if !l.Ended {
		end = driverutil.Later(end, ref.Until)
	}
	return l, o, end, err
}

// parseLease says when the lease of o ends.
func (s *Store) parseLease(name string, o Object) (l lease, end time.Time, err error) {
	if len(o.Value) == 0 {
		return l, end, nil
	}
	if err = json.Unmarshal(o.Value, &l); err != nil {
		err = driver.Permanent(fmt.Errorf("%s cannot be read: %w", name, err))
	}
	if l.Ended {
		return l, l.Until, err
	}
	return l, driverutil.Later(l.Until, o.Modified.Add(s.Grace+time.Duration(l.TTL))), err
}

func (s *Store) writeLease(ctx context.Context, key, name, version string, l lease) (string, error) {
	l.Key, l.Nonce = text(key), rand.Text()
	body, _ := json.Marshal(l)
	return s.Client.Put(ctx, s.Client.LeaseName(key, name), version, body)
}

// end ends the lease of a claim for good, which has ended at that time when v was read. The store decides if its owner
// has renewed it since.
func (s *Store) end(ctx context.Context, key string, v *seen, id text, at time.Time) (ended bool, err error) {
	ref := v.alive(id)
	if ref == nil {
		return true, nil
	}
	if ended, err = s.replaceLease(ctx, key, v, ref, lease{Until: at, Ended: true}); ended {
		v.Ended = append(v.Ended, ref.Lease)
	}
	return ended, err
}

// replaceLease writes the object of ref if it is still the one that v has.
func (s *Store) replaceLease(ctx context.Context, key string, v *seen, ref *leaseRef, l lease) (bool, error) {
	l.ID = ref.ID
	version, err := s.writeLease(ctx, key, ref.Lease, v.Renewed[ref.Lease].Version, l)
	if version != "" {
		v.Renewed[ref.Lease] = renewal{version, l.Until}
	}
	return version != "", err
}

// holder does to the holder's lease what c says, before c is swapped. Others may be about to end for good a lease that
// lasts longer from then on: the swap alone would not stop them.
func (s *Store) holder(ctx context.Context, key string, v *seen, c *swaplock.Change) (done bool, err error) {
	if !c.Ended.IsZero() {
		if ended, err := s.end(ctx, key, v, v.Holder, c.Ended); !ended || err != nil {
			return false, err
		}
	}
	ref := v.alive(text(c.Holder))
	if ref == nil || !c.Expires.After(v.end(ref)) {
		return true, nil
	}
	return s.replaceLease(ctx, key, v, ref, lease{Until: c.Expires})
}

// Purge ends those leases for good that have ended by now.
func (s *Store) Purge(ctx context.Context, key string, ids []string) error {
	_, v, st, err := s.read(ctx, s.Client.LineName(key))
	for _, id := range ids {
		if end, ok := st.Records[id]; ok && err == nil && !end.After(st.Now) {
			_, err = s.end(ctx, key, v, text(id), end)
		}
	}
	return failed(key, err)
}

// Renew has leases end later. A swap that ends one comes before or behind: a lease that was found in its line is
// renewed unless it was ended for good since. It costs two Gets and a Put for each lease, and with a Mailbox one more
// Get where this process has not renewed it before.
func (s *Store) Renew(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
	alive, errs := make([]bool, len(ls)), make([]error, len(ls))
	_ = driverutil.Each(len(ls), atOnce, func(i int) error {
		alive[i], errs[i] = s.renew(ctx, &ls[i])
		return nil
	})
	for _, err := range errs {
		if err == nil { // a lease with an error is asked for again by itself
			return alive, nil
		}
	}
	return alive, failed(ls[0].Key, errs[0])
}

// mostTries is how often a renewal is tried, while others renew the same lease.
const mostTries = 20

func (s *Store) renew(ctx context.Context, l *swaplock.Lease) (alive bool, err error) {
	var before string // the version that was seen first
	for n := range mostTries {
		ref, err := s.ref(ctx, l)
		if ref == nil {
			return false, err
		}
		was, o, end, err := s.readLease(ctx, s.Client.LeaseName(l.Key, ref.Lease), ref)
		if err != nil || was.Ended {
			return false, err
		}
		if n == 0 {
			before = o.Version
		} else if o.Version != before && time.Duration(was.TTL) >= l.TTL {
			return s.stands(ctx, l, ref, o.Version, o.Version) // another call has done it meanwhile
		}
		now, err := s.now(ctx, l.Key)
		if err != nil || !end.After(now) {
			return false, err
		}
		later := lease{ID: ref.ID, TTL: driverutil.Duration(l.TTL), Until: end}
		s.writes(ref.Lease, l.TTL)
		version, err := s.writeLease(ctx, l.Key, ref.Lease, o.Version, later)
		switch {
		case errors.Is(err, ErrConflict), err == nil && version == "": // others have written it
		case err != nil:
			return false, err
		default:
			return s.stands(ctx, l, ref, o.Version, version)
		}
	}
	return false, errBusy
}

// stands reports whether a lease is in its line still, of which version was written in place of before. Since the line
// was read, another client may have ended the lease, taken the lock, and removed the object that said so; or the claim
// has left. Then there was no object, or one that another renewal has made too late. Nobody reads it, and it is
// forgotten some day. A version that is known to be of a lease in line was written before all that.
func (s *Store) stands(
	ctx context.Context, l *swaplock.Lease, ref *leaseRef, before, version string,
) (bool, error) {
	if _, removes := s.Client.(Mailbox); !removes {
		return true, nil
	}
	if before == "" || s.known(ref.Lease) != before {
		if now, err := s.ref(ctx, l); now == nil || now.Lease != ref.Lease {
			return false, err
		}
	}
	s.knows(ref.Lease, version)
	return true, nil
}

// ref reads the lease of l in its line. It is nil if it is not there, or not known.
func (s *Store) ref(ctx context.Context, l *swaplock.Lease) (*leaseRef, error) {
	name := s.Client.LineName(l.Key)
	o, err := s.get(ctx, name)
	if err != nil {
		return nil, err
	}
	d, err := parse(name, o)
	if err != nil {
		return nil, err
	}
	return d.of(text(l.ID)), nil
}

var errBusy = driver.Refused(errors.New("others renew this lease all the time"))
