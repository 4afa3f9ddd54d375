package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// maxChecked bounds how many nodes one transaction looks after, and maxBytes the
// length of their names: servers refuse requests of a megabyte.
const (
	maxChecked = 1024
	maxBytes   = 512 << 10
)

// renewal is one claim to be renewed.
type renewal struct {
	claim  *claim
	from   position
	ttl    time.Duration
	ticket int // its index among the tickets
}

// Renew starts the leases of ts again. It is one transaction for all of them, which checks
// that each claim's node is there. The leader orders it like a write, and refuses it if the
// session has ended, so its answer proves both. A node that somebody deleted costs a read
// each of the others, and the transaction again.
//
// A ticket with a TTL longer than the session allows is not renewed: what Enter
// answered is the longest.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs, err := do(ctx, b, "renewing", ts[0].Key, func(ctx context.Context, s *session) ([]error, error) {
		return b.renew(ctx, s, ts), nil
	})
	if err != nil {
		errs = slices.Repeat([]error{err}, len(ts))
	}
	return errs
}

func (b *Backend) renew(ctx context.Context, s *session, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	var all []renewal
	for i := range ts {
		r, err := b.renewalOf(s, &ts[i])
		if err != nil {
			errs[i] = failed(ctx, "renewing", ts[i].Key, err)
			continue
		}
		r.ticket = i
		all = append(all, r)
	}
	for len(all) > 0 {
		n, bytes := 0, 0
		for n < len(all) && n < maxChecked && bytes < maxBytes {
			bytes += len(all[n].from.node) + 32
			n++
		}
		for i, err := range b.renewBatch(s, all[:n]) {
			errs[all[i].ticket] = failed(ctx, "renewing", all[i].claim.Key, err)
		}
		all = all[n:]
	}
	return errs
}

// renewalOf returns what renewing t takes, or why it cannot be renewed.
func (b *Backend) renewalOf(s *session, t *driver.Ticket) (renewal, error) {
	c, st := b.claims.find(t.Ref())
	if err := st.whyNotIn(s); err != nil {
		return renewal{}, err
	}
	if most := s.lease(t.TTL); most < t.TTL {
		return renewal{}, fmt.Errorf("%v is too long, for the server's session timeout of %v allows %v: "+
			"ask it for a longer one (maxSessionTimeout)", t.TTL, s.timeout, most)
	}
	return renewal{claim: c, from: st.at, ttl: t.TTL}, nil
}

// renewBatch renews claims of session s. It answers one error for each.
func (b *Backend) renewBatch(s *session, batch []renewal) []error {
	errs := make([]error, len(batch))
	err := b.checkNodes(s, batch, errs)
	for errors.Is(err, zk.ErrNoNode) {
		b.findGone(s, batch, errs)
		err = b.checkNodes(s, batch, errs)
	}
	for i, r := range batch {
		if errs[i] == nil {
			errs[i] = err
		}
		if errs[i] == nil {
			errs[i] = r.claim.renewed(r.from.node, r.ttl)
		}
		if errs[i] == nil {
			b.recordGrant(s, r.claim)
		}
	}
	return errs
}

// checkNodes checks in one transaction that the nodes of those claims of the batch that
// have no error yet are there.
func (b *Backend) checkNodes(s *session, batch []renewal, errs []error) error {
	var ops []any
	for i, r := range batch {
		if errs[i] == nil {
			ops = append(ops, &zk.CheckVersionRequest{Path: r.from.node, Version: -1})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	_, err := s.multi(ops...)
	return err
}

// findGone asks for the node of each claim that has no error yet.
func (b *Backend) findGone(s *session, batch []renewal, errs []error) {
	_ = each(len(batch), func(i int) error {
		if errs[i] != nil {
			return nil
		}
		_, err := s.exists(batch[i].from.node)
		if errors.Is(err, zk.ErrNoNode) {
			err = b.nodeGone(s, batch[i].claim, batch[i].from)
		}
		errs[i] = err
		return nil
	})
}

// recordGrant writes into the node of c since when it holds, for people: claims that
// waited know it, and nobody else does. Locks that are held for a moment are never
// renewed and do not pay for it.
func (b *Backend) recordGrant(s *session, c *claim) {
	st := c.state()
	if st.at.node == "" || st.unrecorded.IsZero() {
		return
	}
	c.update(func() { c.unrecorded = time.Time{} })
	record := st.record
	record.Held = max(1, time.Since(st.unrecorded).Milliseconds())
	b.run(func(ctx context.Context) {
		_, _ = s.multi(&zk.SetDataRequest{Path: st.at.node, Data: write(record), Version: -1})
	})
}
