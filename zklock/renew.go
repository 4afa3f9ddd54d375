package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/go-zookeeper/zk"
)

// maxBytes bounds the names in one transaction: servers refuse requests of a megabyte.
const maxBytes = 512 << 10

// renewal is one claim to be renewed, and where what came of it goes.
type renewal struct {
	claim *claim
	st    claimState
	ttl   time.Duration
	err   *error
}

// Renew starts the leases of ts again. It is one transaction for all of them, which checks
// that each claim's node is there and as it was. The leader orders it like a write, and refuses it
// if the session has ended, so its answer proves both. A node that somebody deleted, or in which an
// operator gave notice, costs a read of why, and the transaction again. A TTL longer than the session
// allows is refused.
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
	var batch []renewal
	bytes := 0
	for i, t := range ts {
		c := b.claims.find(driverutil.Ref(t.Key, t.ID))
		st := c.state()
		if errs[i] = renewable(s, &st, t.TTL); errs[i] != nil {
			continue
		}
		batch = append(batch, renewal{c, st, t.TTL, &errs[i]})
		if bytes += len(st.at.node) + 32; bytes >= maxBytes {
			b.renewBatch(s, batch)
			batch, bytes = nil, 0
		}
	}
	b.renewBatch(s, batch)
	for i, err := range errs {
		errs[i] = failed(ctx, "renewing", ts[i].Key, err)
	}
	return errs
}

// renewable says why a claim cannot be renewed for ttl in session s, or returns nil.
func renewable(s *session, st *claimState, ttl time.Duration) error {
	if err := st.whyNotIn(s); err != nil {
		return err
	}
	if most := s.lease(ttl); most < ttl {
		return fmt.Errorf("%v is too long, for the server's session timeout of %v allows %v: "+
			"ask it for a longer one (maxSessionTimeout)", ttl, s.timeout, most)
	}
	return nil
}

// renewBatch renews claims of session s in one transaction.
func (b *Backend) renewBatch(s *session, batch []renewal) {
	var ops []any
	for _, r := range batch {
		ops = append(ops, r.st.unchanged())
	}
	for len(ops) > 0 {
		rs, err := s.multi(ops...)
		changed := errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion)
		if at := firstFailed(rs); changed && at >= 0 && at < len(batch) {
			if r := &batch[at]; r.changed(b, s, err) {
				ops[at] = r.st.unchanged()
			} else {
				batch, ops = slices.Delete(batch, at, at+1), slices.Delete(ops, at, at+1)
			}
			continue
		}
		for _, r := range batch {
			if *r.err = err; err == nil {
				*r.err = r.claim.renewed(r.st.at.node, r.ttl)
			}
			if *r.err == nil {
				b.recordGrant(s, r.claim)
			}
		}
		return
	}
}

// changed finds out why the node of a claim is gone or not as it was. It reports whether the claim is
// renewed once more.
func (r *renewal) changed(b *Backend, s *session, err error) bool {
	if errors.Is(err, zk.ErrNoNode) {
		*r.err = b.nodeGone(s, r.claim, r.st.at.node)
	} else {
		*r.err = b.hear(s, r.claim, r.st.at)
	}
	before := r.st.at
	r.st = r.claim.state()
	if *r.err == nil && r.st.at != before {
		*r.err = cmp.Or(r.st.whyNotIn(s), errRetry)
	}
	return *r.err == nil
}

// recordGrant writes into the node of c since when it holds, for people, if it has waited.
// Locks that are held for a moment are never renewed and do not pay for it.
func (b *Backend) recordGrant(s *session, c *claim) {
	st := c.state()
	if st.at.node == "" || st.unrecorded.IsZero() || st.notice != nil {
		return
	}
	c.update(func() { c.unrecorded = time.Time{} })
	record := st.record
	record.Held = max(1, time.Since(st.unrecorded).Milliseconds())
	b.run(func(ctx context.Context) {
		rs, err := s.multi(&zk.SetDataRequest{Path: st.at.node, Data: write(record), Version: st.version})
		c.update(func() {
			if err == nil && c.at.node == st.at.node && c.version == st.version {
				c.version = rs[0].Stat.Version
			}
		})
	})
}
