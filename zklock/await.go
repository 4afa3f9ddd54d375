package zklock

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
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
// a watch on the claim's node and on what blocks it, and a read of the line and of its
// first claim when one of the two has changed, after a broken connection, and now and then.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	return do(ctx, b, "waiting in the line of", t.Key, func(ctx context.Context, s *session) (driver.Ticket, error) {
		return b.await(ctx, s, t)
	})
}

func (b *Backend) await(ctx context.Context, s *session, t driver.Ticket) (driver.Ticket, error) {
	timer := time.NewTimer(maxAwait)
	defer timer.Stop()
	for {
		c := b.claims.find(driverutil.Ref(t.Key, t.ID))
		st := c.state()
		if err := st.whyNotIn(s); err != nil {
			return t, err
		}
		if err := s.await(ctx); err != nil {
			return t, err
		}
		if time.Since(st.read) >= maxUnread {
			now, err := b.look(s, c, t.Claim)
			if err != nil || now.Granted {
				return now, err
			}
			t = now
		}
		w, err := b.watch(s, c)
		if errors.Is(err, zk.ErrNoNode) {
			c.update(c.readAgain) // it changed before it could be watched
			continue
		}
		if err != nil {
			return t, err
		}
		select {
		case <-w.blocker:
		case <-w.own:
		case <-c.wake:
		case <-timer.C:
			return t, nil
		case <-ctx.Done():
			return t, context.Cause(ctx)
		}
		c.update(c.readAgain)
	}
}

// watches are what a claim that waits has the server tell it: that what blocks it has
// changed, or its own node, which an operator may delete.
type watches struct{ blocker, own <-chan zk.Event }

// watch sets the watches of c, unless they are set. It answers zk.ErrNoNode if one of the
// nodes is gone.
func (b *Backend) watch(s *session, c *claim) (w watches, err error) {
	st := c.state()
	if st.watches.own != nil {
		return st.watches, nil
	}
	line := b.lineOf(c.Key)
	if st.blocker == "" {
		var stat *zk.Stat
		if _, stat, w.blocker, err = s.zk.ChildrenW(line); err == nil && stat.Pzxid != st.pzxid {
			err = zk.ErrNoNode // the line has changed
		}
	} else {
		_, _, w.blocker, err = s.zk.GetW(line + "/" + st.blocker)
	}
	if err == nil {
		_, _, w.own, err = s.zk.GetW(line + "/" + path.Base(st.at.node))
	}
	if err != nil {
		return w, explainRead(err, line)
	}
	c.update(func() {
		if c.read.Equal(st.read) {
			c.watches = w
		}
	})
	return w, nil
}
