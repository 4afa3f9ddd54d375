package memlock

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// Line describes the line of key, also when nobody is in it.
func (s *Store) Line(ctx context.Context, key string) (l driver.Line, err error) {
	err = s.step(ctx, key, func(q *queue, now instant) error {
		l = q.describe(key, now)
		return nil
	})
	return l, err
}

// Lines yields the lines with at least one claim whose keys begin with prefix,
// sorted by key.
func (s *Store) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		for _, key := range s.keys(prefix) {
			l, err := s.Line(ctx, key)
			if err == nil && len(l.Claims) == 0 {
				continue
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
		// An interrupted listing must not look like an empty one.
		if err := ctx.Err(); err != nil {
			yield(driver.Line{}, err)
		}
	}
}

// keys lists the keys that begin with prefix.
func (s *Store) keys(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.lines)), func(key string) bool {
		return !strings.HasPrefix(key, prefix)
	})
}

// describe shows the line.
func (q *queue) describe(key string, now instant) driver.Line {
	d := driver.Line{Key: key, Last: q.lastToken, Mark: q.mark}
	for _, c := range q.claims {
		d.Claims = append(d.Claims, driver.Standing{
			ID:        driver.ShortID(c.ID),
			Owner:     c.Owner,
			Note:      c.Note,
			Capacity:  c.Capacity,
			Weight:    c.Weight,
			Token:     c.token,
			Span:      c.Span,
			Granted:   c.granted,
			Lingering: c.lingering,
			Since:     c.since,
			Left:      c.expires - now.mono,
		})
	}
	return d
}
