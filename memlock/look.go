package memlock

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// Line describes the line of key, also when nobody is in it.
func (s *Store) Line(ctx context.Context, key string) (driver.Line, error) {
	if err := ctx.Err(); err != nil {
		return driver.Line{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.look(key), nil
}

// Lines yields the lines with at least one claim whose keys begin with prefix,
// sorted by key. The Store is free for others between two of them.
func (s *Store) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		for _, key := range s.keys(prefix) {
			if err := ctx.Err(); err != nil {
				yield(driver.Line{}, err)
				return
			}
			s.mu.Lock()
			l := s.look(key)
			s.mu.Unlock()
			if len(l.Claims) > 0 && !yield(l, nil) {
				return
			}
		}
		// A look that was cut short must not pass for one that found nothing.
		if err := ctx.Err(); err != nil {
			yield(driver.Line{}, err)
		}
	}
}

// keys lists the keys in use that begin with prefix.
func (s *Store) keys(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for _, l := range s.order {
		if l.head != nil && strings.HasPrefix(l.key, prefix) {
			keys = append(keys, l.key)
		}
	}
	slices.Sort(keys)
	return keys
}

// look describes one line. It is called under mu.
func (s *Store) look(key string) driver.Line {
	d := driver.Line{Key: key}
	l := s.lines[key]
	if l == nil {
		return d
	}
	now := s.now()
	l.purge(now)
	d.Last = l.last
	if l.marked != nil {
		d.Mark = l.marked.mark
	}
	for c := l.head; c != nil; c = c.next {
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
