package memlock

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/line"
)

// Line returns the line of key, also if it has no claims.
func (s *Store) Line(ctx context.Context, key string) (d driver.Line, err error) {
	err = s.step(ctx, key, func(l *line.Line, at *line.Step) error {
		d = l.Describe(at, key)
		return nil
	})
	return d, err
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
