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
// step. It costs a read of each claim in line up to that one, and that step. The claim's Backend
// hears of it with its next Renew, Await, Leave or Enter, and clears the record
// away. Where that Backend is gone, a later Break does when the record is a day old.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string) error {
	_, err := do(ctx, b, "breaking into the line of", key, func(_ context.Context, s *session) (any, error) {
		err := s.sync()
		if err != nil {
			return nil, err
		}
		f, err := b.findToken(s, key, token)
		var rs []zk.MultiResponse
		if err == nil {
			why := brokenRecord{Format: format, Reason: reason}
			rs, err = s.multi(
				&zk.DeleteRequest{Path: f.path, Version: -1},
				&zk.CreateRequest{Path: b.recordOf(f.stat.Czxid), Data: write(why), Acl: b.acl},
				&zk.SetDataRequest{Path: path.Dir(f.path), Version: -1},
			)
		}
		switch {
		case err == nil:
			b.run(func(context.Context) { b.sweepBroken(s, rs[2].Stat.Mtime) })
		case errors.Is(err, zk.ErrNoNode):
			err = driver.ErrGone{}
		}
		return nil, err
	})
	return err
}

// findToken returns the claim whose span holds token, or zk.ErrNoNode.
func (b *Backend) findToken(s *session, key string, token int64) (*found, error) {
	l, err := b.readLine(s, key)
	if err != nil {
		return nil, err
	}
	for _, m := range l.members {
		f, err := s.open(b.lineOf(key) + "/" + m.name)
		if errors.Is(err, zk.ErrNoNode) || err == nil && (token < f.token || token >= f.token+f.record.Span) {
			continue
		}
		return f, err
	}
	return nil, zk.ErrNoNode
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
