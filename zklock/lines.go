package zklock

import (
	"context"
	"errors"
	"iter"
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
			Reason:  f.record.Reason,
		}
		if c.Granted {
			c.Since = f.since(time.UnixMilli(l.stat.Mtime))
		}
		line.Claims = append(line.Claims, c)
	}
	if l.marked {
		var r markRecord
		r, err = b.readMark(s, key)
		line.Mark = string(r.Mark)
	}
	return line, err
}
