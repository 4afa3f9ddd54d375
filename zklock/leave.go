package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// Leave takes the claim of t out of its line, which wakes whoever watches its node.
// It costs one request.
//
// If ctx ends first, or the connection breaks, the node is deleted in the background as
// soon as there is a connection again, or ends with the session. An Enter of the same ID
// that is still under way is waited for.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if e.Linger > 0 {
		err := fmt.Errorf("zookeeper: a claim on %q cannot linger: the backend's Info says so", t.Key)
		return &driver.PermanentError{Err: err}
	}
	_, err := do(ctx, b, "leaving the line of", t.Key, func(ctx context.Context) (any, error) {
		return nil, b.leave(ctx, t, e.Mark)
	})
	return err
}

func (b *Backend) leave(ctx context.Context, t driver.Ticket, mark driver.Mark) error {
	c, err := b.claims.acquire(ctx, t.Ref())
	if err != nil {
		return err
	}
	defer c.release()
	before := c.state().gone
	if t.Token == 0 {
		c.bar(goneLeft, t.TTL)
	}
	s, err := b.session(ctx)
	if err != nil {
		return err
	}
	p, err := b.settle(s, c)
	switch {
	case err != nil:
		return err
	case p.node != "":
		return b.leaveAt(s, c, p, mark)
	}
	if err := b.leaveUnknown(s, c, mark); !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if before != nil {
		return *before
	}
	return driver.ErrGone{}
}

// leaveAt is Leave for a claim that this Backend has in line. Without a mark it goes on in
// the background where nobody knows whether it was done; with one, the caller asks again
// until the mark is written.
func (b *Backend) leaveAt(s *session, c *claim, p position, mark driver.Mark) error {
	if mark != "" && !c.state().granted { // it may have been granted since it was last looked at
		if _, _, err := b.look(s, c, driver.Claim{Key: c.Key, ID: c.ID}); err != nil {
			return err
		}
	}
	var text []byte
	if mark != "" && c.state().granted {
		text = markOf(c.ID, mark)
	}
	gone, err := b.remove(s, c.Key, p.node, text)
	switch {
	case err != nil && text == nil && !isAnswer(err):
		c.end(p.node, goneLeft) // whoever asks again is told so
		b.finishLeave(c.Key, p)
		return err
	case err != nil:
		return err
	case gone:
		return b.leftBefore(s, c, p)
	}
	c.left()
	return nil
}

// leftBefore is the answer where the node of c was gone: nil if c has written the mark, with
// an earlier try whose answer was lost.
func (b *Backend) leftBefore(s *session, c *claim, p position) error {
	m, err := b.readMark(s, c.Key)
	if err != nil {
		return err
	}
	if m.ID != c.ID {
		return b.nodeGone(s, c, p)
	}
	c.left()
	return nil
}

func markOf(id string, mark driver.Mark) []byte {
	return write(markRecord{Format: format, ID: id, Mark: []byte(mark)})
}

// leaveUnknown is Leave for a claim that this Backend has not in line: another one
// may have entered it, or it is a repeat. It answers zk.ErrNoNode if the claim is not in line.
func (b *Backend) leaveUnknown(s *session, c *claim, mark driver.Mark) error {
	if err := s.sync(b.prefix + linesDir); err != nil {
		return err
	}
	l, err := b.readLine(s, c.Key)
	if err != nil {
		return err
	}
	if i := l.find(c.ID); i >= 0 {
		var text []byte
		if mark != "" && stand(l.members, i).granted {
			text = markOf(c.ID, mark)
		}
		gone, err := b.remove(s, c.Key, b.lineOf(c.Key)+"/"+l.members[i].name, text)
		if err != nil || !gone {
			return err
		}
	}
	m, err := b.readMark(s, c.Key)
	if err == nil && m.ID != c.ID {
		return zk.ErrNoNode
	}
	return err
}

// remove deletes a claim's node, and writes the mark, unless nil, in the same transaction. The
// container of the last one stays for whoever comes back within a minute, and then the server
// clears it away; where too many lines are in use for that, it is deleted with the node.
// remove reports whether the node was not there. It does not repeat what may have been applied.
func (b *Backend) remove(s *session, key, node string, mark []byte) (gone bool, err error) {
	dir := path.Dir(node)
	// The write to the container tells those who look at the line since when the next
	// claim holds.
	deletes, touches := &zk.DeleteRequest{Path: node, Version: -1}, &zk.SetDataRequest{Path: dir, Version: -1}
	tries := [][]any{{deletes, touches}}
	switch {
	case mark != nil: // there may be a mark, or none yet
		tries = [][]any{
			{deletes, &zk.SetDataRequest{Path: dir + "/" + markName, Data: mark, Version: -1}, touches},
			{deletes, &zk.CreateRequest{Path: dir + "/" + markName, Data: mark, Acl: b.acl}, touches},
		}
	case !b.containers.keeps(key):
		tries = [][]any{{deletes, &zk.DeleteRequest{Path: dir, Version: -1}}, tries[0]}
	}
	for try := 0; ; try++ {
		rs, err := s.multi(tries[try%len(tries)]...)
		switch {
		case err == nil:
			line := rs[len(rs)-1].Stat
			switch {
			case line == nil: // it was deleted, too
			case line.NumChildren == 0:
				b.containers.seen(key, line.Version)
			default:
				b.containers.seen(key, anyVersion)
			}
			return false, nil
		case errors.Is(err, zk.ErrNoNode) && firstFailed(rs) == 0:
			return true, nil
		case errors.Is(err, zk.ErrNotEmpty):
		case mark != nil && (errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists)):
		default:
			return false, err
		}
	}
}

// retryEvery is how long a task in the background pauses after it was not answered.
const retryEvery = 100 * time.Millisecond

// finishLeave deletes a claim's node for good, in the background: it asks until it is
// answered, or the session is over and the node with it.
func (b *Backend) finishLeave(key string, p position) {
	b.run(func(ctx context.Context) {
		for p.session.await(ctx) == nil {
			if _, err := b.remove(p.session, key, p.node, nil); err == nil || isAnswer(err) {
				return
			}
			timer := time.NewTimer(retryEvery)
			select {
			case <-timer.C:
			case <-ctx.Done():
			case <-p.session.over:
			}
			timer.Stop()
		}
	})
}
