package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// maxChecked bounds how many nodes one heartbeat looks after, and maxBytes the
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

// Renew starts the leases of ts again. It is one write for all of them: a
// transaction that writes to the session's heartbeat and checks that each claim's node is
// there, so its answer proves both. A node that somebody deleted costs a read each
// of the others, and the write again.
//
// A ticket with a TTL longer than the session allows is not renewed: what Enter
// answered is the longest.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	err := b.ready(ctx)
	if err == nil {
		var s *session
		if s, err = b.session(ctx); err == nil {
			b.renew(ctx, s, ts, errs)
			return errs
		}
		err = failed(ctx, "renewing", ts[0].Key, err)
	}
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (b *Backend) renew(ctx context.Context, s *session, ts []driver.Ticket, errs []error) {
	var all []renewal
	for i := range ts {
		r, err := b.renewalOf(s, &ts[i])
		if err != nil {
			errs[i] = err
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
		for i, err := range b.renewBatch(ctx, s, all[:n]) {
			errs[all[i].ticket] = failed(ctx, "renewing", all[i].claim.Key, err)
		}
		all = all[n:]
	}
}

// renewalOf returns what renewing t takes, or why it cannot be renewed.
func (b *Backend) renewalOf(s *session, t *driver.Ticket) (renewal, error) {
	c, gone := b.claims.find(t.Ref())
	switch {
	case gone != nil:
		return renewal{}, *gone
	case c == nil:
		return renewal{}, driver.ErrGone{}
	}
	p, ok := c.position()
	switch {
	case !ok && c.unresolved():
		return renewal{}, fmt.Errorf("zookeeper: %w", errUnresolved)
	case !ok:
		return renewal{}, c.whyGone()
	case p.session != s:
		return renewal{}, goneSession
	case s.lease(t.TTL) < t.TTL:
		return renewal{}, fmt.Errorf("zookeeper: %q cannot be renewed for %v: the server's session timeout of %v allows %v; "+
			"ask it for a longer one (maxSessionTimeout)", t.Key, t.TTL, s.timeout, s.lease(t.TTL))
	}
	return renewal{claim: c, from: p, ttl: t.TTL}, nil
}

// renewBatch is one heartbeat for claims of session s. It answers one error for each.
func (b *Backend) renewBatch(ctx context.Context, s *session, batch []renewal) []error {
	errs := make([]error, len(batch))
	for {
		ops := []any{s.heartbeat()}
		for i, r := range batch {
			if errs[i] == nil {
				ops = append(ops, &zk.CheckVersionRequest{Path: r.from.node, Version: -1})
			}
		}
		if len(ops) == 1 {
			return errs
		}
		rs, err := s.multi(ctx, ops...)
		if err == nil {
			s.clock(rs[0].Stat.Mtime)
			break
		}
		failedAt := firstFailed(rs)
		again := errors.Is(err, zk.ErrNoNode) && failedAt < len(rs)
		if again && failedAt == 0 {
			again = b.remakeHeartbeat(ctx, s, ops[0].(*zk.SetDataRequest).Path)
		} else if again {
			b.findGone(ctx, s, batch, errs)
		}
		if !again {
			for i := range errs {
				if errs[i] == nil {
					errs[i] = err
				}
			}
			return errs
		}
	}
	for i, r := range batch {
		if errs[i] == nil {
			errs[i] = r.claim.renewed(r.from.node, r.ttl)
		}
		if errs[i] == nil {
			b.recordGrant(s, r.claim)
		}
	}
	return errs
}

// remakeHeartbeat makes the nodes of s again, which somebody deleted. It reports false if
// s does not live any more.
func (b *Backend) remakeHeartbeat(ctx context.Context, s *session, heartbeat string) bool {
	s.forgetNodes(heartbeat)
	now, err := b.session(ctx)
	return err == nil && now == s
}

// findGone asks for the node of each claim that has no error yet.
func (b *Backend) findGone(ctx context.Context, s *session, batch []renewal, errs []error) {
	_ = each(len(batch), func(i int) error {
		if errs[i] != nil {
			return nil
		}
		_, err := s.exists(ctx, batch[i].from.node)
		if errors.Is(err, zk.ErrNoNode) {
			err = b.nodeGone(ctx, s, batch[i].claim, batch[i].from)
		}
		errs[i] = err
		return nil
	})
}

// recordGrant writes into the node of c since when it holds, for people: claims that
// waited know it, and nobody else does. Locks that are held for a moment are never
// renewed and do not pay for it.
func (b *Backend) recordGrant(s *session, c *claim) {
	c.of.mu.Lock()
	node, record, granted := c.at.node, c.record, c.tell
	c.tell = time.Time{}
	c.of.mu.Unlock()
	if node == "" || granted.IsZero() {
		return
	}
	record.Granted = s.now().Add(-time.Since(granted)).UnixMilli()
	b.tasks.run(func(ctx context.Context) { _, _ = s.set(ctx, node, write(record)) })
}
