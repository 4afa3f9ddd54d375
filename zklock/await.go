package zklock

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

const (
	// maxAwait is the longest that Await waits before it returns.
	maxAwait = time.Second
	// maxUnread is the longest for which a line is not read although nothing was
	// heard. Watches are not lost; it is a net below them.
	maxUnread = 10 * time.Second
)

// Await returns when the claim of t is granted or gone, or after a second. It costs
// a watch on the claim's node and on each of those on whom it depends, and a read of the
// line when one of them left, after a broken connection, and now and then.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	return do(ctx, b, "waiting in the line of", t.Key, func(ctx context.Context) (driver.Ticket, error) {
		return b.await(ctx, t)
	})
}

func (b *Backend) await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	timer := time.NewTimer(maxAwait)
	defer timer.Stop()
	for {
		s, err := b.session(ctx)
		if err != nil {
			return t, err
		}
		c, st := b.claims.find(t.Ref())
		if err := st.whyNotIn(s); err != nil {
			return t, err
		}
		if time.Since(st.read) >= maxUnread {
			now, _, err := b.look(s, c, t.Claim)
			if err != nil || now.Granted {
				return now, err
			}
			t = now
		}
		err = b.watchBlockers(s, c)
		if errors.Is(err, zk.ErrNoNode) {
			c.lineChanged() // before it could be watched
		} else if err != nil {
			return t, err
		}
		select {
		case <-c.wake:
		case <-timer.C:
			return t, nil
		case <-ctx.Done():
			return t, context.Cause(ctx)
		}
	}
}

// watchBlockers watches those whom c waits for, and the node of c itself, which an operator
// may delete. It answers zk.ErrNoNode if one of them is gone.
func (b *Backend) watchBlockers(s *session, c *claim) error {
	st := c.state()
	for _, name := range append(slices.Clip(st.blockers), path.Base(st.at.node)) {
		if _, err := s.watch(b.lineOf(c.Key)+"/"+name, c); err != nil {
			return err
		}
	}
	return nil
}
