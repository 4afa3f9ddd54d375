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
	return s.describe(key), nil
}

// Lines yields the lines with at least one claim whose keys begin with prefix,
// sorted by key. It locks the Store for one line at a time.
func (s *Store) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		for _, key := range s.keys(prefix) {
			if err := ctx.Err(); err != nil {
				yield(driver.Line{}, err)
				return
			}
			s.mu.Lock()
			l := s.describe(key)
			s.mu.Unlock()
			if len(l.Claims) > 0 && !yield(l, nil) {
				return
			}
		}
		// An interrupted listing must not look like an empty one.
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
	for key, q := range s.lines {
		if len(q.claims) > 0 && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// describe shows one line. The caller holds mu.
func (s *Store) describe(key string) driver.Line {
	now := s.now()
	q := s.line(key, now)
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
