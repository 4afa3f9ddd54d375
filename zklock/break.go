package zklock

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// Break ends the claim of key whose span holds token, and writes down why, in one
// step. It costs a read of each claim in line, and that step. The claim's Backend
// hears of it with its next Renew, Await, Leave or Enter, and clears the record
// away. Where that Backend is gone, another one does when the record is old.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	return failed(ctx, "breaking into the line of", key, b.breakToken(ctx, key, token, reason))
}

func (b *Backend) breakToken(ctx context.Context, key string, token int64, reason string) error {
	s, err := b.session(ctx)
	if err != nil {
		return err
	}
	if err := s.sync(ctx, b.prefix+linesDir); err != nil {
		return err
	}
	f, err := b.findToken(ctx, s, key, token)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return driver.ErrGone{}
	case err != nil:
		return err
	case f == nil || token&(1<<spanBits-1) >= f.record.Span:
		return driver.ErrGone{}
	}
	return b.breakNode(ctx, s, f, reason)
}

// findToken returns the claim that the transaction in token made, or nil.
func (b *Backend) findToken(ctx context.Context, s *session, key string, token int64) (*found, error) {
	l, err := b.readLine(ctx, s, key)
	if err != nil {
		return nil, err
	}
	stats, err := stats(ctx, s, b.lineOf(key), l.members)
	if err != nil {
		return nil, err
	}
	for _, m := range l.members {
		if stat := stats[m.name]; stat != nil && stat.Czxid == token>>spanBits {
			return b.open(ctx, s, key, m)
		}
	}
	return nil, nil
}

// breakNode deletes the node of f and leaves a record of the reason.
func (b *Backend) breakNode(ctx context.Context, s *session, f *found, reason string) error {
	dir, record := path.Dir(f.path), b.recordOf(f.czxid)
	why := brokenRecord{Format: format, Reason: reason, TTL: f.record.TTL}
	rs, err := s.multi(ctx,
		&zk.DeleteRequest{Path: f.path, Version: -1},
		&zk.CreateRequest{Path: record, Data: write(why), Acl: b.acl},
		&zk.SetDataRequest{Path: dir, Version: -1},
	)
	switch {
	case errors.Is(err, zk.ErrNoNode) && firstFailed(rs) == 0:
		return driver.ErrGone{}
	case err != nil:
		return err
	}
	if rs[2].Stat.NumChildren == 0 {
		b.tasks.run(func(ctx context.Context) { _ = s.delete(ctx, dir) })
	}
	// If its Backend does not ask for the reason, nobody will any more after this.
	time.AfterFunc(f.left()+brokenGrace, func() {
		b.tasks.run(func(ctx context.Context) { _ = s.delete(ctx, record) })
	})
	return nil
}

// brokenGrace is how much longer than a lease its record is kept.
const brokenGrace = 10 * time.Second

// sweepBroken clears away records that nobody can ask for any more. There are as many
// as operators have broken locks of programs that had crashed.
func (b *Backend) sweepBroken(ctx context.Context, s *session) {
	dir := b.prefix + brokenDir
	l, err := s.children(ctx, dir)
	if err != nil {
		return
	}
	for _, name := range l.names {
		record := dir + "/" + name
		n, err := s.get(ctx, record)
		if err != nil {
			continue
		}
		r, err := read[brokenRecord](record, n.data)
		if err != nil {
			continue
		}
		end := time.UnixMilli(n.stat.Ctime).Add(time.Duration(r.TTL)*time.Millisecond + brokenGrace)
		if s.now().After(end) {
			_ = s.delete(ctx, record)
		}
	}
}
