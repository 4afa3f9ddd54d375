package zklock

import (
	"context"
	"errors"
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

// Await returns when the claim of t is granted or gone, or after a second. It costs a watch
// on what blocks the claim, and a read of the line and of its first claim when that has
// changed, after a broken connection, and now and then.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	return do(ctx, b, "waiting in the line of", t.Key, func(ctx context.Context, s *session) (driver.Ticket, error) {
		return b.await(ctx, s, t)
	})
}

func (b *Backend) await(ctx context.Context, s *session, t driver.Ticket) (driver.Ticket, error) {
	timer := time.NewTimer(maxAwait)
	defer timer.Stop()
	for {
		c, st := b.claims.find(t.Ref())
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
		changed, err := b.watch(s, c)
		if errors.Is(err, zk.ErrNoNode) {
			c.update(c.readAgain) // it changed before it could be watched
			continue
		}
		if err != nil {
			return t, err
		}
		select {
		case <-changed:
			c.update(c.readAgain)
		case <-c.wake:
		case <-timer.C:
			return t, nil
		case <-ctx.Done():
			return t, context.Cause(ctx)
		}
	}
}

// watch returns the watch on what blocks c, and sets it if need be. It answers zk.ErrNoNode
// if that has changed since the line was read.
func (b *Backend) watch(s *session, c *claim) (changed <-chan zk.Event, err error) {
	st := c.state()
	if st.watch != nil {
		return st.watch, nil
	}
	line := b.lineOf(c.Key)
	if st.blocker == "" {
		var stat *zk.Stat
		if _, stat, changed, err = s.zk.ChildrenW(line); err == nil && stat.Pzxid != st.pzxid {
			err = zk.ErrNoNode // somebody has come or gone
		}
	} else {
		_, _, changed, err = s.zk.GetW(line + "/" + st.blocker)
	}
	if err != nil {
		return nil, explainRead(err, line)
	}
	c.update(func() {
		if c.read.Equal(st.read) {
			c.watch = changed
		}
	})
	return changed, nil
}
