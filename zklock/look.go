package zklock

import (
	"context"
	"errors"
	"iter"
	"strings"

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
		fail := func(err error) {
			yield(driver.Line{}, failed(ctx, "listing the locks that begin with", prefix, err))
		}
		conn, _, err := b.live(ctx)
		if err != nil {
			fail(err)
			return
		}
		dir := b.prefix + linesDir
		if _, err := conn.Sync(dir).wait(ctx, b); err != nil {
			fail(err)
			return
		}
		l, err := conn.Children(dir).wait(ctx, b)
		if err != nil {
			fail(err)
			return
		}
		var keys []string
		for _, name := range l.names {
			if key, ok := letters.Unescape(name); ok && strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		for len(keys) > 0 {
			some := keys[:min(len(keys), linesAtOnce)]
			keys = keys[len(some):]
			lines := make([]driver.Line, len(some))
			if err := each(len(some), func(i int) (err error) {
				lines[i], err = b.line(ctx, conn, some[i])
				return err
			}); err != nil {
				fail(err)
				return
			}
			for _, l := range lines {
				if len(l.Claims) > 0 && !yield(l, nil) {
					return
				}
			}
		}
	}
}

// Line reads one line.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Line{}, err
	}
	l, err := b.lookAt(ctx, key)
	return l, failed(ctx, "looking at", key, err)
}

func (b *Backend) lookAt(ctx context.Context, key string) (driver.Line, error) {
	conn, _, err := b.live(ctx)
	if err != nil {
		return driver.Line{}, err
	}
	if _, err := conn.Sync(b.prefix+linesDir).wait(ctx, b); err != nil {
		return driver.Line{}, err
	}
	return b.line(ctx, conn, key)
}

// line reads one line. Which token was the last is not remembered: it needs not be,
// for transactions are numbered by the ensemble.
func (b *Backend) line(ctx context.Context, conn client, key string) (driver.Line, error) {
	line := driver.Line{Key: key}
	l, err := b.readLine(ctx, conn, key)
	if errors.Is(err, zk.ErrNoNode) {
		return line, nil
	}
	if err != nil {
		return line, err
	}
	opened := make([]*found, len(l.members))
	if err := each(len(l.members), func(i int) (err error) {
		opened[i], err = b.open(ctx, conn, key, l.members[i])
		if errors.Is(err, zk.ErrNoNode) {
			return nil // gone meanwhile
		}
		return err
	}); err != nil {
		return line, err
	}
	if l.marked {
		r, err := b.readMark(ctx, conn, key)
		if err != nil {
			return line, err
		}
		line.Mark = driver.Mark(r.Mark)
	}
	before := int64(0)
	for i, f := range opened {
		if f == nil {
			continue
		}
		token, err := tokenOf(f.czxid)
		if err != nil {
			return line, err
		}
		m := &l.members[i]
		s := driver.Standing{
			ID: driver.ShortID(m.id), Owner: f.card.Owner, Note: f.card.Note,
			Capacity: m.capacity, Weight: m.weight, Token: token, Span: f.card.Span,
			Granted: before+m.weight <= m.capacity,
			Left:    f.left(),
		}
		if s.Granted {
			s.Since = f.since(millis(l.stat.Mtime))
		} else {
			s.Since = millis(f.stat.Ctime)
		}
		before += m.weight
		line.Claims = append(line.Claims, s)
	}
	return line, nil
}
