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
// that is still under way is waited for. Only this Backend can have sent it, so the
// ID is kept out in its memory.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	if e.Linger > 0 {
		err := fmt.Errorf("zookeeper: a claim on %q cannot linger: the backend's Info says so", t.Key)
		return &driver.PermanentError{Err: err}
	}
	_, before := b.claims.find(t.Ref())
	if t.Token == 0 {
		b.claims.entomb(t.Ref(), goneLeft, t.TTL)
	}
	return failed(ctx, "leaving the line of", t.Key, b.leave(ctx, t.Ref(), e, before))
}

func (b *Backend) leave(ctx context.Context, ref driver.ClaimRef, e driver.Exit, before *driver.ErrGone) error {
	c, err := b.claims.acquire(ctx, ref, b.tasks.closed())
	if err != nil {
		return err
	}
	defer c.release()
	s, err := b.session(ctx)
	if err != nil {
		return err
	}
	inLine, err := b.settle(ctx, s, c)
	switch {
	case err != nil:
		return err
	case !inLine:
		return b.leaveUnknown(ctx, s, ref, e, before)
	case e.Mark != "":
		return b.leaveWithMark(ctx, s, c, e.Mark)
	}
	return b.leaveInLine(ctx, s, c)
}

// leaveInLine is Leave for a claim that this Backend has in line.
func (b *Backend) leaveInLine(ctx context.Context, s *session, c *claim) error {
	p, ok := c.position()
	if !ok {
		return c.whyGone()
	}
	gone, err := b.remove(ctx, s, &removal{key: c.Key, node: p.node})
	switch {
	case err == nil && gone:
		return b.nodeGone(ctx, s, c, p)
	case err == nil:
		c.forget()
	case !isAnswer(err):
		// Nobody knows. It goes on in the background, and whoever asks again is told then.
		c.end(p.node, goneLeft)
		b.tasks.run(func(ctx context.Context) { b.finishLeave(ctx, p, c.Key) })
	}
	return err
}

// leaveWithMark is Leave with a mark, which is written if the claim is granted. Nothing
// goes on in the background: the caller asks again until the mark is written.
func (b *Backend) leaveWithMark(ctx context.Context, s *session, c *claim, mark driver.Mark) error {
	if !c.isGranted() { // it may have been granted since it was last looked at
		if _, _, err := b.standingOf(ctx, s, driver.Claim{Key: c.Key, ID: c.ID}, c); err != nil {
			return err
		}
	}
	if !c.isGranted() {
		return b.leaveInLine(ctx, s, c)
	}
	p, ok := c.position()
	if !ok {
		return c.whyGone()
	}
	gone, err := b.remove(ctx, s, &removal{key: c.Key, node: p.node, mark: markOf(c.ID, mark)})
	if err != nil {
		return err
	}
	if gone {
		if m, err := b.readMark(ctx, s, c.Key); err != nil {
			return err
		} else if m.ID != c.ID {
			return b.nodeGone(ctx, s, c, p)
		}
		// The mark was written by an earlier try whose answer was lost.
	}
	c.forget()
	return nil
}

func markOf(id string, mark driver.Mark) []byte {
	return write(markRecord{Format: format, ID: id, Mark: []byte(mark)})
}

// leaveUnknown is Leave for a claim that this Backend has not in line: another one
// may have entered it, or it is a repeat.
func (b *Backend) leaveUnknown(
	ctx context.Context, s *session, ref driver.ClaimRef, e driver.Exit, before *driver.ErrGone,
) error {
	if err := s.sync(ctx, b.prefix+linesDir); err != nil {
		return err
	}
	f, err := b.seek(ctx, s, ref)
	if err != nil {
		return err
	}
	if f != nil {
		gone, err := b.removeFound(ctx, s, f, ref, e.Mark)
		if err != nil || !gone {
			return err
		}
	}
	m, err := b.readMark(ctx, s, ref.Key)
	switch {
	case err != nil:
		return err
	case m.ID == ref.ID:
		return nil
	case before != nil:
		return *before
	}
	return driver.ErrGone{}
}

// removeFound removes the node of a claim that another Backend has entered. The mark is
// written if the claim is granted.
func (b *Backend) removeFound(
	ctx context.Context, s *session, f *found, ref driver.ClaimRef, mark driver.Mark,
) (gone bool, err error) {
	r := &removal{key: ref.Key, node: f.path}
	if mark != "" {
		l, err := b.readLine(ctx, s, ref.Key)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return false, err
		}
		if err == nil {
			if i := l.index(f.name); i >= 0 && stand(l.members, i).granted {
				r.mark = markOf(ref.ID, mark)
			}
		}
	}
	return b.remove(ctx, s, r)
}

// removal is one claim's node to be taken out of a line.
type removal struct {
	key  string
	node string
	mark []byte // to be written in the same transaction, unless empty
}

// remove deletes a claim's node. The container of the last one stays for whoever comes
// back within a minute, and then the server clears it away; where too many lines are in
// use for that, it is deleted with the node. remove reports whether the node was not there.
// It does not repeat what may have been applied.
func (b *Backend) remove(ctx context.Context, s *session, r *removal) (gone bool, err error) {
	for try := 0; ; try++ {
		ops, whole := b.removalOps(r, try)
		rs, err := s.multi(ctx, ops...)
		switch {
		case err == nil:
			b.noteRemoval(s, r.key, rs[len(rs)-1].Stat, whole)
			return false, nil
		case errors.Is(err, zk.ErrNoNode) && firstFailed(rs) == 0:
			return true, nil
		case errors.Is(err, zk.ErrNotEmpty):
		case r.mark != nil && (errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists)):
		default:
			return false, err
		}
	}
}

// removalOps returns the operations of one try, and whether they delete the container,
// too. The write to the container tells those who look at the line since when the next
// claim holds.
func (b *Backend) removalOps(r *removal, try int) (ops []any, whole bool) {
	dir := path.Dir(r.node)
	remove := &zk.DeleteRequest{Path: r.node, Version: -1}
	touch := &zk.SetDataRequest{Path: dir, Version: -1}
	switch {
	case r.mark != nil && try%2 == 0:
		return []any{remove, &zk.SetDataRequest{Path: dir + "/" + markName, Data: r.mark, Version: -1}, touch}, false
	case r.mark != nil: // there was no mark yet
		return []any{remove, &zk.CreateRequest{Path: dir + "/" + markName, Data: r.mark, Acl: b.acl}, touch}, false
	case try == 0 && !b.lines.keeps(r.key):
		return []any{remove, &zk.DeleteRequest{Path: dir, Version: -1}}, true
	}
	return []any{remove, touch}, false
}

// noteRemoval remembers how a node left its line: line is the container's Stat after
// that, unless it was deleted as well.
func (b *Backend) noteRemoval(s *session, key string, line *zk.Stat, whole bool) {
	switch {
	case whole:
		b.lines.gone(key)
	case line.NumChildren > 0:
		b.lines.seen(key)
	case b.lines.keeps(key):
		b.lines.empty(key, line.Version)
	default:
		b.removeLine(key)
	}
}

// finishLapse deletes the node of a claim whose lease ended.
func (b *Backend) finishLapse(p position, key string) {
	b.tasks.run(func(ctx context.Context) { b.finishLeave(ctx, p, key) })
}

// retryEvery is how long a task in the background pauses after it was not answered.
const retryEvery = 100 * time.Millisecond

// finishLeave deletes a claim's node for good: it asks until it is answered, or the
// session is over and the node with it.
func (b *Backend) finishLeave(ctx context.Context, p position, key string) {
	for ctx.Err() == nil {
		s, err := b.conn.await(ctx)
		if err != nil || s != p.session {
			return // Close, or another session
		}
		if _, err = b.remove(ctx, s, &removal{key: key, node: p.node}); err == nil || isAnswer(err) {
			return
		}
		timer := time.NewTimer(retryEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-s.over:
		}
		timer.Stop()
	}
}
