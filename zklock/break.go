package zklock

import (
	"context"
	"errors"
	"path"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

var _ driver.Alarm = (*Backend)(nil)

// Break ends the claim of key whose span holds token, and writes down why, in one
// step. It costs a read of each claim in line up to that one, and that step. The claim's Backend
// watches what is written down, hears of it with its next Renew, Await, Leave or Enter at the latest,
// and clears the record away. Where that Backend is gone, a later Break does when the record is a day
// old.
//
// With a notice it writes into the claim's node when the claim ends, by the server's clock, for which
// it asks first. The claim's Backend ends it then.
func (b *Backend) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	if how.Delay > 0 {
		return cannotLinger(key)
	}
	_, err := do(ctx, b, "breaking into the line of", key, func(ctx context.Context, s *session) (any, error) {
		err := errRetry
		for errors.Is(err, errRetry) && ctx.Err() == nil {
			err = b.breakOne(s, key, token, how)
		}
		return nil, err
	})
	return err
}

// breakOne is one attempt of Break.
func (b *Backend) breakOne(s *session, key string, token int64, how driver.Break) error {
	if err := s.sync(); err != nil {
		return err
	}
	f, upTo, err := b.findToken(s, key, token)
	if errors.Is(err, zk.ErrNoNode) {
		return driver.GoneError{}
	}
	if err != nil {
		return err
	}
	dir := path.Dir(f.path)
	ops := []any{&zk.DeleteRequest{Path: f.path, Version: -1}, &zk.SetDataRequest{Path: dir, Version: -1}}
	switch granted := fits(upTo, len(upTo)-1); {
	case how.Notice > 0 && granted:
		if ops[0], err = b.noticeRequest(s, f, how); err != nil {
			return err
		}
	case how.Notice > 0:
		ops = append(ops, stillWaits(dir, upTo)...)
	}
	rs, err := b.writeBroken(s, f.stat.Czxid, brokenRecord{Format: format, Reason: how.Reason}, ops...)
	switch at := firstFailed(rs); {
	case err == nil:
		b.run(func(context.Context) { b.sweepBroken(s, rs[2].Stat.Mtime) })
	case errors.Is(err, zk.ErrNoNode) && at == 1:
		return driver.GoneError{}
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		return errRetry
	}
	return err
}

// writeBroken writes why a claim was broken, or that it is under notice, and does ops in the same
// transaction.
func (b *Backend) writeBroken(s *session, czxid int64, why brokenRecord, ops ...any) ([]zk.MultiResponse, error) {
	record := b.recordOf(czxid)
	writes := []any{
		&zk.CreateRequest{Path: record, Data: write(why), Acl: b.acl},
		&zk.SetDataRequest{Path: record, Data: write(why), Version: -1}, // there was a notice before
	}
	for try := 0; ; try++ {
		rs, err := s.multi(append([]any{writes[try%len(writes)]}, ops...)...)
		if firstFailed(rs) != 0 || !errors.Is(err, zk.ErrNodeExists) && !(errors.Is(err, zk.ErrNoNode) && try > 0) {
			return rs, err
		}
	}
}

// noticeRequest writes into the node of a claim when it ends.
func (b *Backend) noticeRequest(s *session, f *found, how driver.Break) (any, error) {
	now, err := s.now()
	r := f.record
	r.Ends, r.Reason = max(r.Ends, now+how.Notice.Milliseconds()), how.Reason
	if r.Held != 0 { // until this is written
		r.Held += now - f.stat.Mtime
	}
	return &zk.SetDataRequest{Path: f.path, Data: write(r), Version: f.stat.Version}, err
}

// now is the server's clock, in ms since 1970.
func (s *session) now() (int64, error) {
	rs, err := s.multi(&zk.SetDataRequest{Path: s.b.prefix + brokenDir, Data: formatData, Version: -1})
	if err != nil {
		return 0, err
	}
	return rs[0].Stat.Mtime, nil
}

// findToken returns the claim whose span holds token, and the line up to it; or zk.ErrNoNode.
func (b *Backend) findToken(s *session, key string, token int64) (*found, []member, error) {
	l, err := b.readLine(s, key)
	if err != nil {
		return nil, nil, err
	}
	for i, m := range l.members {
		f, err := s.open(b.lineOf(key) + "/" + m.name)
		if errors.Is(err, zk.ErrNoNode) || err == nil && (token < f.token || token >= f.token+f.record.Span) {
			continue
		}
		return f, l.members[:i+1], err
	}
	return nil, nil, zk.ErrNoNode
}

// hear reads the node of a claim, which has changed, and notes what an operator has written there.
func (b *Backend) hear(s *session, c *claim, at position) error {
	record := b.recordOf(at.czxid)
	_, broken, _ := s.get(record) // before the node: what is written after it is read stays
	f, err := s.open(at.node)
	if errors.Is(err, zk.ErrNoNode) {
		return b.nodeGone(s, c, at.node)
	}
	if err != nil {
		return err
	}
	left := time.Duration(0)
	if f.record.Ends != 0 {
		now, err := s.now()
		if err != nil {
			return err
		}
		left = time.Duration(f.record.Ends-now) * time.Millisecond
	}
	c.update(func() {
		if c.at.node != at.node || f.stat.Version < c.version {
			return
		}
		c.version = f.stat.Version
		if f.record.Ends != 0 {
			c.notice = &driver.GoneError{Reason: f.record.Reason, Broken: true}
			c.ends = time.Now().Add(left)
			c.timer.Reset(left)
		}
	})
	if broken != nil {
		b.run(func(context.Context) {
			// Not if the node has changed, or is gone: that record says why, and may have the version of this one.
			unchanged := &zk.CheckVersionRequest{Path: at.node, Version: f.stat.Version}
			_, _ = s.multi(unchanged, &zk.DeleteRequest{Path: record, Version: broken.Version})
		})
	}
	return nil
}

// noticed returns the notice of the claim, and how much of it is left.
func (st *claimState) noticed() error {
	gone := *st.notice
	gone.Left = max(time.Until(st.ends), 0)
	return gone
}

// unchanged checks that the node of the claim is as it was.
func (st *claimState) unchanged() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: st.at.node, Version: st.version}
}

// Alarm calls f for claims of this Backend that were broken.
func (b *Backend) Alarm(f func(id string, gone driver.GoneError)) (stop func()) {
	return b.alarms.Subscribe(f)
}

// listen watches what operators write down, from the first claim of s to the end of s.
func (s *session) listen() {
	s.listens.Do(func() {
		s.b.run(func(ctx context.Context) {
			for s.await(ctx) == nil {
				names, _, changed, err := s.zk.ChildrenW(s.b.prefix + brokenDir)
				if err != nil {
					<-time.After(maxAwait)
					continue
				}
				s.b.heard(s, names)
				select {
				case <-changed:
				case <-s.ctx.Done():
				case <-ctx.Done():
				}
			}
		})
	})
}

// heard tells the alarms of the claims that the records with these names are about.
func (b *Backend) heard(s *session, names []string) {
	written := make(map[int64]bool, len(names))
	for _, name := range names {
		if czxid, err := strconv.ParseInt(name, 16, 64); err == nil {
			written[czxid] = true
		}
	}
	for _, c := range b.claims.among(s, written) {
		st := c.state()
		if st.at.node == "" {
			continue
		}
		err := b.hear(s, c, st.at)
		if st = c.state(); err == nil && st.notice != nil {
			err = st.noticed()
		}
		var gone driver.GoneError
		if errors.As(err, &gone) && gone.Broken {
			b.alarms.Notify(c.ID, gone)
		}
	}
}

// brokenAge is for how long a record is kept: far longer than a lease.
const brokenAge = 24 * time.Hour

// sweepBroken clears away records that nobody can ask for any more: of locks of programs
// that had crashed. now is the time in ms by the server's clock.
func (b *Backend) sweepBroken(s *session, now int64) {
	records, _, _ := s.children(b.prefix + brokenDir)
	for _, name := range records {
		record := b.prefix + brokenDir + "/" + name
		if _, stat, err := s.get(record); err == nil && stat.Ctime < now-brokenAge.Milliseconds() {
			b.deleteLater(s, record)
		}
	}
}
