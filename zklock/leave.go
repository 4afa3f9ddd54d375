package zklock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/go-zookeeper/zk"
)

func cannotLinger(key string) error {
	err := fmt.Errorf("zookeeper: a claim on %q cannot linger: the backend's Info says so", key)
	return driver.Permanent(err)
}

// Leave takes the claim of t out of its line, which wakes the claims that watch its node.
// It costs one request.
//
// If ctx ends first, or the connection breaks, the node is deleted in the background as
// soon as there is a connection again, or ends with the session. An Enter of the same ID
// that is still under way is waited for.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if e.Linger > 0 {
		return cannotLinger(t.Key)
	}
	_, err := do(ctx, b, "leaving the line of", t.Key, func(_ context.Context, s *session) (any, error) {
		if e.IfWaiting {
			return nil, b.leaveIfWaiting(s, t, e.Tombstone)
		}
		return nil, b.leave(s, t, e)
	})
	return err
}

func (b *Backend) leave(s *session, t driver.Ticket, e driver.Exit) error {
	mark := e.Mark
	c := b.claims.acquire(driverutil.Ref(t.Key, t.ID))
	defer c.release()
	if e.Tombstone {
		c.bar(goneLeft, t.TTL)
	}
	p, err := b.settle(s, c)
	if err != nil {
		return err
	}
	node, holds := p.node, c.state().granted
	if node == "" || mark != "" && !holds {
		// Another Backend may have entered it, or it may have been granted by now.
		if node, holds, err = b.find(s, c.ClaimRef); err != nil {
			return err
		}
	}
	gone, marks := node == "", mark != "" && holds
	if !marks {
		mark = ""
	}
	if !gone {
		gone, err = b.removeHeard(s, c, p, node, mark)
	}
	switch {
	case gone:
		return b.leaveGone(s, c, p)
	case err == nil:
		c.left()
	case p.node != "" && !marks && !isAnswer(err):
		// The outcome is unknown. The background finishes it, and later calls answer that c has left.
		// With a mark, the caller asks again until the mark is written.
		c.end(p.node, goneLeft)
		b.finishLeave(c.Key, p)
		err = unsureError{err}
	}
	return err
}

// removeHeard deletes the node of a claim, and writes its mark if there is one. If an operator has
// given notice that this Backend has not heard of, it hears of it first: later calls return the reason.
func (b *Backend) removeHeard(s *session, c *claim, p position, node, mark string) (gone bool, err error) {
	for {
		version := int32(anyVersion)
		if node == p.node {
			version = c.state().version
		}
		if mark != "" {
			gone, err = b.removeWithMark(s, c, node, version, mark)
		} else {
			gone, err = b.remove(s, c.Key, node, version)
		}
		if !errors.Is(err, zk.ErrBadVersion) {
			return gone, err
		}
		if err := b.hear(s, c, p); err != nil && !driver.Gone(err) {
			return false, err
		}
	}
}

// leaveIfWaiting is Leave for a claim that stays if it is granted. The transaction that deletes
// its node also checks that the claims that keep it waiting are in line.
func (b *Backend) leaveIfWaiting(s *session, t driver.Ticket, tombstone bool) error {
	c := b.claims.acquire(driverutil.Ref(t.Key, t.ID))
	defer c.release()
	p, err := b.settle(s, c)
	if err != nil {
		return err
	}
	ms, err := b.waitsBehind(s, c)
	for ; ms != nil && err == nil; ms, err = b.waitsBehind(s, c) {
		if err = b.removeBehind(s, c.Key, ms); err == nil || !errors.Is(err, zk.ErrNoNode) {
			break
		}
	}
	switch {
	case err != nil:
		return err
	case tombstone:
		c.bar(goneLeft, t.TTL)
	}
	if ms == nil {
		return b.leaveGone(s, c, p)
	}
	c.left()
	return nil
}

// waitsBehind returns the line up to a claim, the claim itself last. It returns nil if the claim is
// not in line, and ErrGranted if it is granted.
func (b *Backend) waitsBehind(s *session, c *claim) ([]member, error) {
	if err := s.sync(); err != nil {
		return nil, err
	}
	l, err := b.readLine(s, c.Key)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	for i, m := range slices.Backward(l.members) {
		switch {
		case m.id != c.ID:
		case c.state().granted || fits(l.members, i):
			return nil, driver.ErrGranted
		default:
			return l.members[:i+1], nil
		}
	}
	return nil, nil
}

// removeBehind deletes the node of the last of ms, which waits, while those before it are in
// line. It returns zk.ErrNoNode if one of the nodes is gone.
func (b *Backend) removeBehind(s *session, key string, ms []member) error {
	dir, own := b.lineOf(key), len(ms)-1
	ops := []any{&zk.DeleteRequest{Path: dir + "/" + ms[own].name, Version: -1}}
	ops = append(ops, stillWaits(dir, ms)...)
	rs, err := s.multi(append(ops, &zk.SetDataRequest{Path: dir, Version: -1})...)
	if err == nil {
		b.containers.seen(key, rs[len(rs)-1].Stat)
	}
	return err
}

// stillWaits checks that the claims are in line that keep the last of ms waiting.
func stillWaits(dir string, ms []member) (checks []any) {
	own := len(ms) - 1
	room := ms[own].capacity - ms[own].weight
	for _, m := range ms[:own] {
		checks = append(checks, &zk.CheckVersionRequest{Path: dir + "/" + m.name, Version: -1})
		if room -= m.weight; room < 0 {
			break
		}
	}
	return checks
}

// leaveGone is Leave for a claim that is not in line any more. It is nil if that claim has
// written the mark: the answer of an earlier Leave was lost.
func (b *Backend) leaveGone(s *session, c *claim, p position) error {
	m, err := b.readMark(s, c.Key)
	switch {
	case err != nil:
		return err
	case m.ID == c.ID:
		c.left()
		return nil
	case p.node != "":
		return b.nodeGone(s, c, p.node)
	}
	return *cmp.Or(c.state().gone, &driver.GoneError{})
}

// find looks for the node of a claim, and says whether the claim is granted. The node is
// empty if the claim is not in line. There may be two nodes: one of a session that has expired
// and is being cleared away. The later one is meant.
func (b *Backend) find(s *session, ref driverutil.ClaimRef) (node string, holds bool, err error) {
	if err := s.sync(); err != nil {
		return "", false, err
	}
	l, err := b.readLine(s, ref.Key)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return "", false, err
	}
	for i, m := range slices.Backward(l.members) {
		if m.id == ref.ID {
			return b.lineOf(ref.Key) + "/" + m.name, fits(l.members, i), nil
		}
	}
	return "", false, nil
}

// removeWithMark deletes the node of a claim, and writes its mark in the same transaction. If the
// line has a larger mark, that one stays. It reports whether the node was not there.
func (b *Backend) removeWithMark(
	s *session, c *claim, node string, version int32, mark string,
) (gone bool, err error) {
	dir := path.Dir(node)
	for {
		writes, err := b.markRequest(s, dir+"/"+markName, markRecord{Format: format, ID: c.ID, Mark: []byte(mark)})
		if err != nil {
			return false, err
		}
		deletes, touches := &zk.DeleteRequest{Path: node, Version: version}, &zk.SetDataRequest{Path: dir, Version: -1}
		rs, err := s.multi(deletes, writes, touches)
		switch {
		case err == nil:
			b.containers.seen(c.Key, rs[len(rs)-1].Stat)
			return false, nil
		case errors.Is(err, zk.ErrNoNode) && firstFailed(rs) == 0:
			return true, nil
		case errors.Is(err, zk.ErrBadVersion) && firstFailed(rs) == 0:
			return false, err
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion):
			if err := s.sync(); err != nil { // the mark has changed since it was read
				return false, err
			}
		default:
			return false, err
		}
	}
}

// markRequest is the request that writes a mark, or the larger one that is there.
func (b *Backend) markRequest(s *session, path string, m markRecord) (any, error) {
	data, stat, err := s.get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return &zk.CreateRequest{Path: path, Data: write(m), Acl: b.acl}, nil
	}
	if err != nil {
		return nil, err
	}
	before, err := read[markRecord](path, data)
	if err != nil {
		return nil, err
	}
	if bytes.Compare(before.Mark, m.Mark) > 0 {
		m.Mark = before.Mark
	}
	return &zk.SetDataRequest{Path: path, Data: write(m), Version: stat.Version}, nil
}

// remove deletes a claim's node. It reports whether the node was not there. The container of the
// last claim stays for claims that come within a minute. If too many lines are in use for that, it
// is deleted with the node.
func (b *Backend) remove(s *session, key, node string, version int32) (gone bool, err error) {
	dir := path.Dir(node)
	// The write to the container tells those who look at the line since when the next
	// claim holds.
	deletes, touches := &zk.DeleteRequest{Path: node, Version: version}, &zk.SetDataRequest{Path: dir, Version: -1}
	tries := [][]any{{deletes, touches}}
	if b.containers.find(key).seen.IsZero() {
		tries = [][]any{{deletes, &zk.DeleteRequest{Path: dir, Version: -1}}, tries[0]}
	}
	for try := 0; ; try++ {
		rs, err := s.multi(tries[try%len(tries)]...)
		switch {
		case err == nil:
			if line := rs[len(rs)-1].Stat; line != nil { // else it was deleted, too
				b.containers.seen(key, line)
			}
			return false, nil
		case errors.Is(err, zk.ErrNoNode) && firstFailed(rs) == 0:
			return true, nil
		case errors.Is(err, zk.ErrNotEmpty):
		default:
			return false, err
		}
	}
}

// retryEvery is how long a task in the background pauses after it was not answered.
const retryEvery = 100 * time.Millisecond

// finishLeave deletes a claim's node in the background: it asks until it is answered, or
// the session is over and the node with it.
func (b *Backend) finishLeave(key string, p position) {
	b.run(func(ctx context.Context) {
		for p.session.await(ctx) == nil {
			if _, err := b.remove(p.session, key, p.node, anyVersion); err == nil || isAnswer(err) {
				return
			}
			<-time.After(retryEvery)
		}
	})
}
