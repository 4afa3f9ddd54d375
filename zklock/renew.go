package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// maxBytes bounds the names in one transaction: servers refuse requests of a megabyte.
const maxBytes = 512 << 10

// renewal is one claim to be renewed, and what came of it.
type renewal struct {
	claim *claim
	node  string
	ttl   time.Duration
	err   error
}

// Renew starts the leases of ts again. It is one transaction for all of them, which checks
// that each claim's node is there. The leader orders it like a write, and refuses it if the
// session has ended, so its answer proves both. A node that somebody deleted costs a read of
// each node, and the transaction again. A TTL longer than the session allows is refused.
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
	all := make([]renewal, len(ts))
	for i := range ts {
		all[i] = b.renewalOf(s, &ts[i])
	}
	errs := make([]error, 0, len(ts))
	for rest := all; len(rest) > 0; {
		n, bytes := 0, 0
		for n < len(rest) && bytes < maxBytes {
			bytes += len(rest[n].node) + 32
			n++
		}
		b.renewBatch(s, rest[:n])
		rest = rest[n:]
	}
	for i, r := range all {
		errs = append(errs, failed(ctx, "renewing", ts[i].Key, r.err))
	}
	return errs
}

// renewalOf returns what renewing t takes. It has an error if t cannot be renewed.
func (b *Backend) renewalOf(s *session, t *driver.Ticket) renewal {
	c, st := b.claims.find(t.Ref())
	r := renewal{c, st.at.node, t.TTL, st.whyNotIn(s)}
	if most := s.lease(t.TTL); r.err == nil && most < t.TTL {
		r.err = fmt.Errorf("%v is too long, for the server's session timeout of %v allows %v: "+
			"ask it for a longer one (maxSessionTimeout)", t.TTL, s.timeout, most)
	}
	return r
}

// renewBatch renews those claims of session s that have no error yet.
func (b *Backend) renewBatch(s *session, batch []renewal) {
	err := b.checkNodes(s, batch)
	for errors.Is(err, zk.ErrNoNode) {
		for i := range batch {
			r := &batch[i]
			if r.err != nil {
				continue
			}
			if _, r.err = s.exists(r.node); errors.Is(r.err, zk.ErrNoNode) {
				r.err = b.nodeGone(s, r.claim, r.node)
			}
		}
		err = b.checkNodes(s, batch)
	}
	for i := range batch {
		r := &batch[i]
		if r.err = cmp.Or(r.err, err); r.err == nil {
			r.err = r.claim.renewed(r.node, r.ttl)
		}
		if r.err == nil {
			b.recordGrant(s, r.claim)
		}
	}
}

// checkNodes checks in one transaction that the nodes of those claims that have no error
// yet are there.
func (b *Backend) checkNodes(s *session, batch []renewal) error {
	var ops []any
	for _, r := range batch {
		if r.err == nil {
			ops = append(ops, &zk.CheckVersionRequest{Path: r.node, Version: -1})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	_, err := s.multi(ops...)
	return err
}

// recordGrant writes into the node of c since when it holds, for people, if it has waited.
// Locks that are held for a moment are never renewed and do not pay for it.
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
