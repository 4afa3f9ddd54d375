package zklock

import (
	"context"
	"errors"
	"iter"
	"path"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/go-zookeeper/zk"
)

// Lines yields the lines whose keys begin with prefix. It reads the names of all
// lines, and then each of those and each claim in them.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		const doing = "listing the locks that begin with"
		keys, err := do(ctx, b, doing, prefix, func(_ context.Context, s *session) ([]string, error) {
			return b.keys(s, prefix)
		})
		if err != nil {
			yield(driver.Line{}, err)
		}
		for _, key := range keys {
			l, err := do(ctx, b, doing, key, func(_ context.Context, s *session) (driver.Line, error) {
				return b.describeLine(s, key)
			})
			if err != nil {
				yield(l, err)
				return
			}
			if len(l.Claims) > 0 && !yield(l, nil) {
				return
			}
		}
	}
}

// keys returns the keys that begin with prefix and have a container.
func (b *Backend) keys(s *session, prefix string) (keys []string, err error) {
	dir := b.prefix + linesDir
	if err := s.sync(); err != nil {
		return nil, err
	}
	names, _, err := s.children(dir)
	for _, name := range names {
		if key, ok := segment.Unescape(name); ok && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// Line reads one line.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	return do(ctx, b, "looking at", key, func(_ context.Context, s *session) (driver.Line, error) {
		if err := s.sync(); err != nil {
			return driver.Line{}, err
		}
		return b.describeLine(s, key)
	})
}

// describeLine reads one line. Which token was the last is not remembered: transactions
// are numbered by the ensemble.
func (b *Backend) describeLine(s *session, key string) (driver.Line, error) {
	line := driver.Line{Key: key}
	l, err := b.readLine(s, key)
	if errors.Is(err, zk.ErrNoNode) {
		return line, nil
	}
	if err != nil {
		return line, err
	}
	sum := int64(0)
	for _, m := range l.members {
		f, err := s.open(b.lineOf(key) + "/" + m.name)
		if errors.Is(err, zk.ErrNoNode) {
			continue // it has left meanwhile
		}
		if err != nil {
			return line, err
		}
		sum += f.weight
		c := driver.Standing{
			Claim: driver.Claim{
				ID:        driverutil.ShortID(f.id),
				Owner:     f.record.Owner,
				Note:      f.record.Note,
				Trace:     f.record.Trace,
				LockDelay: time.Duration(f.record.LockDelay),
				Capacity:  f.capacity,
				Weight:    f.weight,
				Span:      f.record.Span,
			},
			Token:   f.token,
			Granted: sum <= f.capacity,
			Since:   time.UnixMilli(f.stat.Ctime),
			Left:    f.left(),
		}
		if c.Granted {
			c.Since = f.since(time.UnixMilli(l.stat.Mtime))
		}
		line.Claims = append(line.Claims, c)
	}
	if l.marked {
		var r markRecord
		r, err = b.readMark(s, key)
		line.Mark = driver.Mark(r.Mark)
	}
	return line, err
}

// Break ends the claim of key whose span holds token, and writes down why, in one
// step. It costs a read of each claim in line up to that one, and that step. The claim's Backend
// hears of it with its next Renew, Await, Leave or Enter, and clears the record
// away. Where that Backend is gone, a later Break does when the record is a day old.
func (b *Backend) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	if how.Delay > 0 {
		return cannotLinger(key)
	}
	_, err := do(ctx, b, "breaking into the line of", key, func(_ context.Context, s *session) (any, error) {
		err := s.sync()
		if err != nil {
			return nil, err
		}
		f, err := b.findToken(s, key, token)
		var rs []zk.MultiResponse
		if err == nil {
			why := brokenRecord{Format: format, Reason: how.Reason}
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
			err = driver.GoneError{}
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
