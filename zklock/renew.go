package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// mostChecked bounds how many nodes one heartbeat looks after, and mostBytes the
// length of their names: servers refuse requests of a megabyte.
const (
	mostChecked = 1024
	mostBytes   = 512 << 10
)

// Renew starts the leases of ts again. It is one write for all of them: a
// transaction that writes to the session's beat and checks that each claim's node is
// there, so its answer proves both. A node that somebody deleted costs a read each
// of the others, and the write again.
//
// A ticket with a TTL longer than the session allows is not renewed: what Enter
// answered is the longest.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	if err := b.ready(ctx); err != nil {
		return fill(errs, err)
	}
	conn, s, err := b.live(ctx)
	if err != nil {
		return fill(errs, failed(ctx, "renewing", ts[0].Key, err))
	}
	var places []*place
	var nodes []string
	var ttls []time.Duration
	var index []int
	for i := range ts {
		p, gone := b.find(ref{ts[i].Key, ts[i].ID})
		switch {
		case gone != nil:
			errs[i] = *gone
			continue
		case p == nil:
			errs[i] = driver.ErrGone{}
			continue
		}
		node, own, ok := b.inLine(p)
		switch {
		case !ok && b.unsettled(p):
			errs[i] = errors.New("zookeeper: its Enter has not been answered yet")
		case !ok:
			errs[i] = b.whyGone(p)
		case own != s:
			errs[i] = goneSession
		case s.lease(ts[i].TTL) < ts[i].TTL:
			errs[i] = fmt.Errorf("zookeeper: %q cannot be renewed for %v: the server's session timeout of %v allows %v; ask it for a longer one (maxSessionTimeout)",
				ts[i].Key, ts[i].TTL, s.timeout, s.lease(ts[i].TTL))
		default:
			places, nodes, ttls, index = append(places, p), append(nodes, node), append(ttls, ts[i].TTL), append(index, i)
		}
	}
	for from := 0; from < len(places); {
		to, bytes := from, 0
		for to < len(places) && to-from < mostChecked && bytes < mostBytes {
			bytes += len(nodes[to]) + 32
			to++
		}
		for n, err := range b.renew(ctx, conn, s, places[from:to], nodes[from:to], ttls[from:to]) {
			i := index[from+n]
			errs[i] = failed(ctx, "renewing", ts[i].Key, err)
		}
		from = to
	}
	return errs
}

func fill(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// renew is one heartbeat for places of session s.
func (b *Backend) renew(ctx context.Context, conn client, s *session, places []*place, nodes []string, ttls []time.Duration) []error {
	errs := make([]error, len(places))
	alive := make([]int, len(places)) // those not known to be gone
	for i := range alive {
		alive[i] = i
	}
	for {
		ops := []any{&zk.SetDataRequest{Path: s.path(b, "b"), Data: []byte{'0' + format}, Version: -1}}
		for _, i := range alive {
			ops = append(ops, &zk.CheckVersionRequest{Path: nodes[i], Version: -1})
		}
		rs, err := conn.Multi(ops...).wait(ctx, b)
		if err == nil {
			s.clock(rs[0].Stat.Mtime)
			break
		}
		at := 0
		for at < len(rs) && rs[at].Error == nil {
			at++
		}
		switch {
		case !errors.Is(err, zk.ErrNoNode) || at >= len(rs):
			for _, i := range alive {
				errs[i] = err
			}
			return errs
		case at == 0:
			// The beat itself was deleted: if the session lives, it is made again.
			b.unready(ctx, s)
			if _, now, err2 := b.live(ctx); err2 != nil || now != s {
				for _, i := range alive {
					errs[i] = err
				}
				return errs
			}
			continue
		}
		if alive = b.winnow(ctx, conn, places, nodes, alive, errs); len(alive) == 0 {
			return errs
		}
	}
	b.mu.Lock()
	var touched []*place
	for _, i := range alive {
		p := places[i]
		if p.path != nodes[i] {
			if errs[i] = goneLease; p.gone != nil {
				errs[i] = *p.gone
			}
			continue
		}
		b.extend(p, ttls[i])
		if !p.late.IsZero() {
			touched = append(touched, p)
		}
	}
	b.mu.Unlock()
	for _, p := range touched {
		b.tellGrant(conn, s, p)
	}
	return errs
}

// winnow asks for each node and returns those that are there.
func (b *Backend) winnow(ctx context.Context, conn client, places []*place, nodes []string, alive []int, errs []error) []int {
	there := make([]bool, len(places))
	_ = each(len(alive), func(n int) error {
		i := alive[n]
		switch _, err := conn.Exists(nodes[i]).wait(ctx, b); {
		case errors.Is(err, zk.ErrNoNode):
			errs[i] = b.deleted(ctx, conn, places[i], nodes[i])
		case err != nil:
			errs[i] = err
		default:
			there[i] = true
		}
		return nil
	})
	var left []int
	for _, i := range alive {
		if there[i] {
			left = append(left, i)
		}
	}
	return left
}

// tellGrant writes into the node of p since when it holds, for people: claims that
// waited know it, and nobody else does. Locks that are held for a moment are never
// renewed and do not pay for it.
func (b *Backend) tellGrant(conn client, s *session, p *place) {
	b.mu.Lock()
	node, c, late := p.path, p.card, p.late
	p.late = time.Time{}
	b.mu.Unlock()
	if node == "" {
		return
	}
	c.Granted = s.now().Add(-time.Since(late)).UnixMilli()
	b.background(func(ctx context.Context) {
		conn.Set(node, c.write(), -1).wait(ctx, b)
	})
}
