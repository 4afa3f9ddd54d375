package zklock

import (
	"context"
	"errors"
	"path"
	"reflect"
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
	// patient is how long a claim has waited when it begins to watch its own node, which
	// an operator may delete, and asks who is first in a long line. Where lines move
	// faster nobody pays for that: the reading that grants a claim tells whether it is
	// still there.
	patient = 250 * time.Millisecond
	// fewAhead is how many may be ahead of a claim that asks as it joins who is first. In
	// a longer line somebody else is by the time that anybody has read it.
	fewAhead = 4
)

// Await returns when the claim of t is granted or gone, or after a second. It costs
// a watch on each of those on whom the claim depends, a read of the line when one of
// them left, after a broken connection, and now and then; and two reads more if the
// claim waits for longer than a quarter of a second.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	t, err := b.await(ctx, t)
	return t, failed(ctx, "waiting in the line of", t.Key, err)
}

func (b *Backend) await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	c, gone := b.claims.find(t.Ref())
	switch {
	case gone != nil:
		return t, *gone
	case c == nil:
		return t, driver.ErrGone{}
	}
	end := time.Now().Add(maxAwait)
	for {
		s, p, err := b.placed(ctx, c)
		if err != nil {
			return t, err
		}
		w := c.waiting()
		if _, generation := b.conn.state(); w.stale(generation) {
			now, ahead, err := b.standingOf(ctx, s, t.Claim, c)
			if err != nil || now.Granted {
				return now, err
			}
			if ahead[0].name == w.headTold {
				now.Head = t.Head
			}
			t = now
			continue
		}
		until := end
		if early := w.joined.Add(patient); time.Now().Before(early) && early.Before(end) {
			until = early
		}
		watches, err := b.watchAll(ctx, s, c, p, &w)
		if err != nil {
			return t, err
		}
		if watches == nil {
			continue // one of the blockers was gone before it could be watched
		}
		if w.patient() {
			if head, err := b.describeHead(ctx, s, c, t.Ahead); err != nil {
				return t, err
			} else if head != nil {
				t.Head = head
			}
		}
		woken, err := b.waitForAny(ctx, watches, c, s, until)
		switch {
		case err != nil:
			return t, err
		case woken:
			c.readAgain()
		case until == end:
			return t, nil
		}
	}
}

// placed returns the session and the position of a claim that is in line.
func (b *Backend) placed(ctx context.Context, c *claim) (*session, position, error) {
	s, err := b.session(ctx)
	if err != nil {
		return nil, position{}, err
	}
	p, ok := c.position()
	switch {
	case !ok && c.unresolved():
		return nil, p, errUnresolved
	case !ok:
		return nil, p, c.whyGone()
	case p.session != s:
		return nil, p, errNoSession
	}
	return s, p, nil
}

// waiting returns what c knows of its line.
func (c *claim) waiting() waiting {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.wait
}

// stale reports whether the line must be read again before anything is waited for.
func (w *waiting) stale(generation int) bool {
	return w.read.IsZero() || w.generation != generation || time.Since(w.read) >= maxUnread
}

func (w *waiting) patient() bool { return time.Since(w.joined) >= patient }

// readAgain has the line of c read again before anything is waited for.
func (c *claim) readAgain() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.wait.read, c.wait.watches = time.Time{}, nil
}

// watchAll watches those whom c waits for and, once it has waited for a while, the node
// of c itself. It returns nil if one of them is gone.
func (b *Backend) watchAll(ctx context.Context, s *session, c *claim, p position, w *waiting) ([]*watch, error) {
	names := w.blockers
	if w.patient() {
		names = append(names[:len(names):len(names)], path.Base(p.node))
	}
	if len(w.watches) == len(names) {
		return w.watches, nil
	}
	var all []*watch
	for _, name := range names {
		one, err := s.watch(ctx, path.Dir(p.node)+"/"+name)
		if err != nil {
			return nil, err
		}
		if one == nil {
			c.readAgain()
			return nil, nil
		}
		all = append(all, one)
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.wait.read == w.read {
		c.wait.watches = all
	}
	return all, nil
}

// describeHead describes the claim that was first in line when c last looked. It is nil
// if that has gone, and if it was described before. Where c waits for that one alone the
// request sets the watch on it, too.
func (b *Backend) describeHead(ctx context.Context, s *session, c *claim, ahead int) (*driver.BusyError, error) {
	w := c.waiting()
	if w.first.name == w.headTold {
		return nil, nil
	}
	f, err := b.openHead(ctx, s, c, &w)
	if f == nil || err != nil {
		return nil, err
	}
	c.of.mu.Lock()
	c.wait.headTold = w.first.name
	c.of.mu.Unlock()
	return f.busy(ahead)
}

// openHead reads the node of the first claim in line; nil if it is gone.
func (b *Backend) openHead(ctx context.Context, s *session, c *claim, w *waiting) (*found, error) {
	if len(w.blockers) == 1 && w.blockers[0] == w.first.name {
		node := b.lineOf(c.Key) + "/" + w.first.name
		one, err := s.watch(ctx, node)
		if one == nil || err != nil {
			return nil, err
		}
		return parseNode(node, w.first, one.node)
	}
	f, err := b.open(ctx, s, c.Key, w.first)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return f, err
}

// waitForAny waits until one of the watches fires or c is not in line any more. It
// answers false if that has not happened by the end.
func (b *Backend) waitForAny(
	ctx context.Context, watches []*watch, c *claim, s *session, end time.Time,
) (woken bool, err error) {
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	c.of.mu.Lock()
	left := c.left
	c.of.mu.Unlock()
	channels := []any{ctx.Done(), b.tasks.closed(), timer.C, left, s.over}
	for _, w := range watches {
		channels = append(channels, w.fired)
	}
	cases := make([]reflect.SelectCase, len(channels))
	for i, ch := range channels {
		cases[i] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)}
	}
	switch chosen, _, _ := reflect.Select(cases); chosen {
	case 0:
		return false, ctx.Err()
	case 1:
		return false, driver.ErrClosed
	case 2:
		return false, nil
	}
	return true, nil
}
