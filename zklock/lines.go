package zklock

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// linesAtOnce is how many lines are read side by side.
const linesAtOnce = 64

// Lines yields the lines whose keys begin with prefix. It reads the names of all
// lines, and then each of those and each claim in them.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		if err := b.ready(ctx); err != nil {
			yield(driver.Line{}, err)
			return
		}
		if err := b.eachLine(ctx, prefix, func(l driver.Line) bool { return yield(l, nil) }); err != nil {
			yield(driver.Line{}, failed(ctx, "listing the locks that begin with", prefix, err))
		}
	}
}

// eachLine calls yield for each line with a claim, until it returns false.
func (b *Backend) eachLine(ctx context.Context, prefix string, yield func(driver.Line) bool) error {
	s, err := b.session(ctx)
	if err != nil {
		return err
	}
	keys, err := b.keys(ctx, s, prefix)
	if err != nil {
		return err
	}
	for len(keys) > 0 {
		some := keys[:min(len(keys), linesAtOnce)]
		keys = keys[len(some):]
		lines := make([]driver.Line, len(some))
		if err := each(len(some), func(i int) (err error) {
			lines[i], err = b.describeLine(ctx, s, some[i])
			return err
		}); err != nil {
			return err
		}
		for _, l := range lines {
			if len(l.Claims) > 0 && !yield(l) {
				return nil
			}
		}
	}
	return nil
}

// keys returns the keys that begin with prefix and have a container.
func (b *Backend) keys(ctx context.Context, s *session, prefix string) (keys []string, err error) {
	dir := b.prefix + linesDir
	if err := s.sync(ctx, dir); err != nil {
		return nil, err
	}
	l, err := s.children(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, name := range l.names {
		if key, ok := segment.Unescape(name); ok && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// Line reads one line.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Line{}, err
	}
	l, err := b.readOneLine(ctx, key)
	return l, failed(ctx, "looking at", key, err)
}

func (b *Backend) readOneLine(ctx context.Context, key string) (driver.Line, error) {
	s, err := b.session(ctx)
	if err != nil {
		return driver.Line{}, err
	}
	if err := s.sync(ctx, b.prefix+linesDir); err != nil {
		return driver.Line{}, err
	}
	return b.describeLine(ctx, s, key)
}

// describeLine reads one line. Which token was the last is not remembered: transactions
// are numbered by the ensemble.
func (b *Backend) describeLine(ctx context.Context, s *session, key string) (driver.Line, error) {
	line := driver.Line{Key: key}
	l, err := b.readLine(ctx, s, key)
	if errors.Is(err, zk.ErrNoNode) {
		return line, nil
	}
	if err != nil {
		return line, err
	}
	nodes := make([]*found, len(l.members))
	if err := each(len(l.members), func(i int) (err error) {
		nodes[i], err = b.open(ctx, s, key, l.members[i])
		if errors.Is(err, zk.ErrNoNode) {
			return nil // gone meanwhile
		}
		return err
	}); err != nil {
		return line, err
	}
	if l.marked {
		r, err := b.readMark(ctx, s, key)
		if err != nil {
			return line, err
		}
		line.Mark = driver.Mark(r.Mark)
	}
	sum := int64(0)
	for _, f := range nodes {
		if f == nil {
			continue
		}
		sum += f.weight
		standing, err := f.standing(sum <= f.capacity, time.UnixMilli(l.stat.Mtime))
		if err != nil {
			return line, err
		}
		line.Claims = append(line.Claims, standing)
	}
	return line, nil
}

// standing describes the claim to people; changed is when its line last did.
func (f *found) standing(granted bool, changed time.Time) (driver.Standing, error) {
	token, err := tokenOf(f.czxid)
	if err != nil {
		return driver.Standing{}, err
	}
	since := time.UnixMilli(f.stat.Ctime)
	if granted {
		since = f.since(changed)
	}
	return driver.Standing{
		ID: driver.ShortID(f.id), Owner: f.record.Owner, Note: f.record.Note,
		Capacity: f.capacity, Weight: f.weight, Token: token, Span: f.record.Span,
		Granted: granted, Since: since, Left: f.left(),
	}, nil
}
