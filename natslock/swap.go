package natslock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/swaplock"
)

// Swap writes the line of key, unless somebody has since it was read. A holder whose lease has ended is kept from
// renewing it first.
func (s *store) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	v := version{Renewals: map[string]uint64{}}
	if c.If != "" {
		if err := json.Unmarshal([]byte(c.If), &v); err != nil {
			return "", driver.Permanent(err)
		}
	}
	latest, err := s.latest(ctx)
	if err != nil || !c.Before.IsZero() && !latest.Before(c.Before) {
		return "", err
	}
	if !c.Ended.IsZero() {
		if done, err := s.kill(ctx, key, &v, v.Holder); !done || err != nil {
			return "", err
		}
	}
	next, gone := next(&v, c, latest)
	revision, err := s.put(ctx, "line."+names.Escape(key), next, &v.Revision)
	if revision == 0 || err != nil {
		return "", err
	}
	for _, name := range gone {
		s.remove(leaseName(key, name), revision)
	}
	for _, m := range v.Messages[:c.Arrivals] {
		s.remove(m.Name, m.Revision)
	}
	if len(c.News) > 0 && len(c.Document) > 0 {
		s.tell(key, c.News)
	}
	now := version{
		Revision: revision, Done: next.Done, Holder: next.Holder, Leases: next.Leases,
		Renewals: v.Renewals, Messages: v.Messages[c.Arrivals:],
	}
	return now.String(), nil
}

// next returns the text that a swap writes, and the names of the leases that it ends.
func next(v *version, c *swaplock.Change, latest time.Time) (n *value, gone []string) {
	n = &value{
		Last: c.Last, Mark: names.Escape(c.Mark), MarkedBy: names.Escape(c.MarkedBy), Holder: names.Escape(c.Holder),
		Leases: maps.Clone(v.Leases), Done: v.Done, Document: c.Document,
	}
	if n.Leases == nil {
		n.Leases = map[string]lease{}
	}
	if c.Arrivals > 0 {
		n.Done = v.Messages[c.Arrivals-1].Revision
	}
	maps.DeleteFunc(n.Leases, func(id string, e lease) bool {
		ends := id == v.Holder && id != n.Holder || slices.Contains(v.Dead, e.Name) ||
			slices.Contains(c.Drop, unescape(id))
		if ends && v.Renewals[e.Name] != 0 {
			gone = append(gone, e.Name)
		}
		return ends
	})
	extend := func(id string, until time.Time) {
		e := n.Leases[id]
		n.Leases[id] = lease{cmp.Or(e.Name, fresh()), driverutil.Later(e.Until, until)}
	}
	if c.Holder != "" {
		extend(n.Holder, c.Expires)
	}
	for _, l := range c.Lend {
		extend(names.Escape(l.ID), latest.Add(l.TTL))
	}
	return n, gone
}

// kill ends the lease of a claim for good, unless it was renewed since v.
func (s *store) kill(ctx context.Context, key string, v *version, id string) (done bool, err error) {
	name := v.Leases[id].Name
	if slices.Contains(v.Dead, name) {
		return true, nil
	}
	seen := v.Renewals[name]
	revision, err := s.put(ctx, leaseName(key, name), renewal{Dead: true}, &seen)
	if revision != 0 {
		v.Dead = append(v.Dead, name)
		v.Renewals[name] = revision
	}
	return revision != 0, err
}

// Renew has leases end later. A swap that ends one comes before or behind: a lease that was found in its line is
// renewed unless it was killed since.
func (s *store) Renew(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
	alive := make([]bool, len(ls))
	err := driverutil.Each(len(ls), atOnce, func(i int) (err error) {
		alive[i], err = s.renew(ctx, &ls[i])
		return err
	})
	return alive, err
}

func (s *store) renew(ctx context.Context, l *swaplock.Lease) (alive bool, err error) {
	var before uint64 // the revision of the last renewal that was seen
	for n := range 10 {
		line, _, err := s.line(ctx, l.Key)
		e, ok := line.Leases[names.Escape(l.ID)]
		if !ok || err != nil {
			return false, err
		}
		name := leaseName(l.Key, e.Name)
		r, seen, until, err := s.renewal(ctx, l.Key, name)
		switch {
		case err != nil || r.Dead:
			return false, err
		case n > 0 && seen != before && time.Duration(r.TTL) >= l.TTL:
			return true, nil // another call has done it meanwhile
		}
		latest, err := s.latest(ctx)
		left := driverutil.Later(e.Until, until).Sub(latest)
		if left <= 0 || err != nil {
			return false, err
		}
		before = seen
		seen, err = s.put(ctx, name, renewal{TTL: driverutil.Duration(max(l.TTL, left))}, &seen)
		if seen != 0 || err != nil {
			return true, err
		}
	}
	return false, driver.Refused(errors.New("nats: others renew this lease all the time"))
}

// renewal reads the last renewal of a lease, and when the lease ends by it. Without one its revision is 0.
func (s *store) renewal(ctx context.Context, key, name string) (r renewal, seen uint64, until time.Time, err error) {
	m, err := s.get(ctx, name)
	if m == nil || err != nil {
		return r, 0, until, err
	}
	err = m.decode(key, &r)
	return r, m.Revision, m.At.Add(time.Duration(r.TTL)), err
}

// Purge kills leases that have ended.
func (s *store) Purge(ctx context.Context, key string, ids []string) error {
	st, v, err := s.read(ctx, key)
	for _, id := range ids {
		if err == nil && st.Records[id].Before(st.Now) && v.Leases[names.Escape(id)].Name != "" {
			_, err = s.kill(ctx, key, &v, names.Escape(id))
		}
	}
	return err
}

// Message adds a message.
func (s *store) Message(ctx context.Context, key string, m []byte) error {
	_, err := s.put(ctx, "note."+names.Escape(key)+"."+fresh(), json.RawMessage(m), nil)
	return err
}
