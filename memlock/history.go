package memlock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver/record"
)

// remembered is one grant in the history of its key.
type remembered struct {
	record.Entry
	at time.Duration // of the last entry; since start
}

// Record adds es to the histories of their keys.
func (s *Store) Record(ctx context.Context, es []record.Entry, keep record.Bounds) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.start)
	for _, e := range es {
		h := s.histories[e.Key]
		i, known := slices.BinarySearchFunc(h, e.Token, func(r remembered, token int64) int {
			return cmp.Compare(r.Token, token)
		})
		if !known {
			h = slices.Insert(h, i, remembered{Entry: record.Entry{Key: e.Key, Token: e.Token}})
		}
		h[i].Merge(e)
		h[i].at = now
		for len(h) > keep.Keep || len(h) > 0 && now-h[0].at > keep.For {
			h = h[1:]
		}
		s.histories[e.Key] = h
	}
	return nil
}

// History returns what is known of the last n grants of key.
func (s *Store) History(ctx context.Context, key string, n int) ([]record.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var es []record.Entry
	for _, r := range slices.Backward(s.histories[key]) {
		if len(es) < n {
			es = append(es, r.Entry)
		}
	}
	return es, nil
}
