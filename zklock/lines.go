package zklock

import (
	"context"
	"errors"
	"iter"
	"slices"
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
		const doing = "listing the locks that begin with"
		keys, err := do(ctx, b, doing, prefix, func(ctx context.Context) ([]string, error) {
			return b.keys(ctx, prefix)
		})
		for some := range slices.Chunk(keys, linesAtOnce) {
			lines, err := do(ctx, b, doing, prefix, func(ctx context.Context) ([]driver.Line, error) {
				return b.describeLines(ctx, some)
			})
			for _, l := range lines {
				if len(l.Claims) > 0 && !yield(l, nil) {
					return
				}
			}
			if err != nil {
				yield(driver.Line{}, err)
				return
			}
		}
		if err != nil {
			yield(driver.Line{}, err)
		}
	}
}

func (b *Backend) describeLines(ctx context.Context, keys []string) ([]driver.Line, error) {
	s, err := b.session(ctx)
	if err != nil {
		return nil, err
	}
	lines := make([]driver.Line, len(keys))
	return lines, each(len(keys), func(i int) (err error) {
		lines[i], err = b.describeLine(s, keys[i])
		return err
	})
}

// keys returns the keys that begin with prefix and have a container.
func (b *Backend) keys(ctx context.Context, prefix string) (keys []string, err error) {
	s, err := b.session(ctx)
	if err != nil {
		return nil, err
	}
	dir := b.prefix + linesDir
	if err := s.sync(dir); err != nil {
		return nil, err
	}
	l, err := s.children(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range l.children {
		if key, ok := segment.Unescape(name); ok && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// Line reads one line.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	return do(ctx, b, "looking at", key, func(ctx context.Context) (driver.Line, error) {
		s, err := b.session(ctx)
		if err == nil {
			err = s.sync(b.prefix + linesDir)
		}
		if err != nil {
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
	nodes, err := b.openAll(s, key, l.members)
	if err != nil {
		return line, err
	}
	if l.marked {
		r, err := b.readMark(s, key)
		if err != nil {
			return line, err
		}
		line.Mark = driver.Mark(r.Mark)
	}
	sum := int64(0)
	for _, f := range nodes {
		sum += f.weight
		standing, err := f.standing(sum <= f.capacity, time.UnixMilli(l.stat.Mtime))
		if err != nil {
			return line, err
		}
		line.Claims = append(line.Claims, standing)
	}
	return line, nil
}

// openAll reads the nodes of claims. Those that are gone are left out.
func (b *Backend) openAll(s *session, key string, ms []member) ([]*found, error) {
	nodes := make([]*found, len(ms))
	err := each(len(ms), func(i int) (err error) {
		nodes[i], err = b.open(s, key, ms[i])
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	})
	return slices.DeleteFunc(nodes, func(f *found) bool { return f == nil }), err
}

// standing describes the claim to people; changed is when its line last did.
func (f *found) standing(granted bool, changed time.Time) (driver.Standing, error) {
	token, err := tokenOf(f.stat.Czxid)
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
