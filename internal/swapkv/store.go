package swapkv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/swaplock"
)

// atOnce is how many requests of one call are under way.
const atOnce = 64

// Store is a swaplock.Store but for Traits, Forget and Watch.
type Store struct {
	Client Client
	// Grace is by how much the clock that has stamped an object may be ahead of the Now of a later response.
	Grace time.Duration
	// Size is the least size of a document with a line.
	Size int

	clock *clock.Clock // of this process

	mu          sync.Mutex
	time        time.Time // what the store has said last,
	sent, heard int64     // when it was asked, and when it said so, by the clock of the process
	written     written
}

// New returns a Store over c, without Grace and Size.
func New(c Client) Store {
	return Store{Client: c, clock: clock.New(), written: written{leases: map[string]writtenLease{}}}
}

// saw notes the time of the store, which was asked for at sent.
func (s *Store) saw(sent int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.IsZero() {
		s.time, s.sent, s.heard = now, sent, s.clock.Now()
	}
}

// driftsAfter is for how long the clocks of the store and of the process are believed to go alike.
const driftsAfter = 10 * time.Second

// now is at or before the time of the store, by less than a request takes. If that is not known it costs a Read of key.
func (s *Store) now(ctx context.Context, key string) (time.Time, error) {
	s.mu.Lock()
	said, age := s.time, s.clock.Since(s.heard)
	s.mu.Unlock()
	if !said.IsZero() && age < driftsAfter {
		return said.Add(age), nil
	}
	_, _, st, err := s.read(ctx, s.Client.LineName(key))
	return st.Now, err
}

// latest is at or after the time of the store, once now has returned.
func (s *Store) latest() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.time.Add(s.clock.Since(s.sent) + s.Grace)
}

func (s *Store) get(ctx context.Context, name string) (Object, error) {
	sent := s.clock.Now()
	o, err := s.Client.Get(ctx, name)
	s.saw(sent, o.Now)
	return o, err
}

// Read costs a Get, and one for each lease that may have been renewed; and with a Mailbox a Beside at the same time as
// the first, and a Get for each message.
func (s *Store) Read(ctx context.Context, key string, _ int) (swaplock.State, error) {
	_, _, st, err := s.read(ctx, s.Client.LineName(key))
	return st, failed(key, err)
}

// read reads the line with a name.
func (s *Store) read(ctx context.Context, name string) (key string, v *seen, st swaplock.State, err error) {
	o, beside, err := s.line(ctx, name)
	st = swaplock.State{Now: driverutil.Later(o.Now, beside.Now), Records: map[string]time.Time{}}
	if err != nil {
		return "", nil, st, err
	}
	d, err := parse(name, o)
	if err != nil {
		return "", nil, st, err
	}
	st.Content = swaplock.Content{
		Last: d.Last, Mark: string(d.Mark), MarkedBy: string(d.MarkedBy), Holder: string(d.Holder), Document: d.Line,
	}
	v = &seen{standing: d.standing, Version: o.Version, Renewed: map[string]renewal{}}
	if err = s.leases(ctx, string(d.Key), v, &st, beside.Leases); err == nil {
		err = s.messages(ctx, v, &st, beside.Messages)
	}
	st.Version, st.Seen = v.Version, v
	return string(d.Key), v, st, err
}

// line reads a line and what there is beside it, at once. If another client swaps between the two, the version of the
// line is an old one, or messages are listed that the line has done.
func (s *Store) line(ctx context.Context, name string) (o Object, beside Beside, err error) {
	box, ok := s.Client.(Mailbox)
	if !ok {
		o, err = s.get(ctx, name)
		return o, beside, err
	}
	err = driverutil.Each(2, atOnce, func(i int) (err error) {
		if i == 0 {
			o, err = s.get(ctx, name)
			return err
		}
		sent := s.clock.Now()
		beside, err = box.Beside(ctx, name)
		s.saw(sent, beside.Now)
		return err
	})
	return o, beside, err
}

// leases reads the leases of v that may have been renewed.
func (s *Store) leases(
	ctx context.Context, key string, v *seen, st *swaplock.State, renewed map[string]bool,
) error {
	read := make([]struct {
		lease
		Object
		end time.Time
	}, len(v.Leases))
	err := driverutil.Each(len(read), atOnce, func(i int) (err error) {
		l, ref := &read[i], &v.Leases[i]
		name := s.Client.LeaseName(key, ref.Lease)
		if l.end = ref.Until; renewed == nil || renewed[name] {
			l.lease, l.Object, l.end, err = s.readLease(ctx, name, ref)
		}
		return err
	})
	for i, ref := range v.Leases {
		l := &read[i]
		if l.Version != "" {
			v.Renewed[ref.Lease] = renewal{l.Version, l.end}
		}
		if l.Ended {
			v.Ended = append(v.Ended, ref.Lease)
		}
		if ref.ID == v.Holder {
			st.Expires = l.end
		} else if !l.Ended {
			st.Records[string(ref.ID)] = l.end
		}
	}
	return err
}

// messages reads those that were not done.
func (s *Store) messages(ctx context.Context, v *seen, st *swaplock.State, names []string) error {
	type read struct {
		message
		Object
	}
	all := make([]read, len(names))
	err := driverutil.Each(len(names), atOnce, func(i int) (err error) {
		all[i].Name = names[i]
		if all[i].Object, err = s.get(ctx, names[i]); err == nil && len(all[i].Value) > 0 {
			all[i].message.Version, err = strconv.ParseInt(all[i].Object.Version, 10, 64)
		}
		return err
	})
	slices.SortFunc(all, func(a, b read) int { return cmp.Compare(a.message.Version, b.message.Version) })
	for _, m := range all {
		if m.message.Version > v.Done {
			st.Arrivals = append(st.Arrivals, swaplock.Arrival{Message: true, Claim: m.Value, At: m.Modified})
			v.Messages = append(v.Messages, m.message)
		}
	}
	return err
}

// Swap costs a Put, one more if the holder's lease has ended or lasts longer from then on, and a renewal for each lease
// that is lent again.
//
// A store compares only the version, so Change.Before is compared here, and the Put may land later. Then the document
// shows that nobody has taken the place of a claim that has ended meanwhile.
func (s *Store) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	v := c.Seen.(*seen)
	now, err := s.now(ctx, key)
	if err != nil || !c.Before.IsZero() && !now.Before(c.Before) {
		return "", failed(key, err)
	}
	if done, err := s.holder(ctx, key, v, c); !done || err != nil {
		return "", failed(key, err)
	}
	next := v.next(c)
	for _, l := range c.Lend {
		if next.of(text(l.ID)) == nil {
			next.extend(text(l.ID), s.latest().Add(l.TTL))
		} else if alive, err := s.renew(ctx, &l); !alive || err != nil { // in its object, where others renew it, too
			return "", failed(key, err)
		}
	}
	d := write(key, c, next)
	next.Version, err = s.Client.Put(ctx, s.Client.LineName(key), v.Version, d.body(s.Size))
	if errors.Is(err, ErrConflict) {
		next.Version, err = s.settle(ctx, d, err)
	}
	if next.Version == "" || err != nil {
		return "", failed(key, err)
	}
	s.sweep(key, v, next)
	c.Next = next
	return next.Version, nil
}

// settle finds whether the Put of d took effect, of which the store says only that another request was under way.
func (s *Store) settle(ctx context.Context, d *document, unknown error) (string, error) {
	name := s.Client.LineName(string(d.Key))
	o, err := s.get(ctx, name)
	if err != nil {
		return "", unknown
	}
	is, err := parse(name, o)
	switch {
	case err != nil || is.Swap > d.Swap:
		return "", unknown
	case is.Nonce == d.Nonce:
		return o.Version, nil
	}
	return "", nil // the place of d has another one, or none
}

// List costs what Read costs for each name that the Client has.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[swaplock.Keyed, error] {
	return func(yield func(swaplock.Keyed, error) bool) {
		for name, err := range s.Client.LineNames(ctx, prefix) {
			var k swaplock.Keyed
			if err == nil {
				k.Key, _, k.State, err = s.read(ctx, name)
			}
			if err == nil && (len(k.Document) == 0 || !strings.HasPrefix(k.Key, prefix)) {
				continue
			}
			if !yield(k, failed(prefix, err)) || err != nil {
				return
			}
		}
	}
}

// IdleLine reports whether o is a line whose last token is below before, with claims, or with nothing to keep.
func IdleLine(o Object, before int64) (busy, idle bool) {
	d, err := parse("", o)
	if err != nil || d.Last >= before {
		return false, false
	}
	return len(d.Line) > 0, len(d.Line) == 0 && d.Mark == ""
}

// IdleLease reports whether o is a lease that had ended before.
func (s *Store) IdleLease(o Object, before time.Time) bool {
	_, end, err := s.parseLease("", o)
	return err == nil && end.Before(before)
}

// Changed reports whether the line of key has another version, by a Get.
func (s *Store) Changed(ctx context.Context, key, version string) bool {
	o, err := s.get(ctx, s.Client.LineName(key))
	return err == nil && o.Version != version
}

// failed says which key a request was about.
func failed(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%.80q: %w", key, err)
}
