package swaplock_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/swaplock"
)

// toy is the smallest store that compares and swaps: a map behind a mutex.
type toy struct {
	mu      sync.Mutex
	next    int
	keys    map[string]*toyKey
	hearers map[*func(key string, ids []string)]bool
}

type toyKey struct {
	version string
	content swaplock.Content
	records map[string]time.Time
}

func newToy() *toy {
	return &toy{keys: map[string]*toyKey{}, hearers: map[*func(string, []string)]bool{}}
}

func (s *toy) Traits() swaplock.Traits { return swaplock.Traits{Name: "toy"} }

// key finds what there is of key, with mu held, and the time.
func (s *toy) key(key string) (*toyKey, time.Time) {
	k := s.keys[key]
	if k == nil {
		k = &toyKey{records: map[string]time.Time{}}
		s.keys[key] = k
	}
	return k, time.Now()
}

func (s *toy) state(key string) swaplock.State {
	k, now := s.key(key)
	return swaplock.State{Version: k.version, Now: now, Content: k.content, Records: maps.Clone(k.records)}
}

func (s *toy) Read(ctx context.Context, key string) (swaplock.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state(key), ctx.Err()
}

func (s *toy) Swap(ctx context.Context, key string, c *swaplock.Change) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, _ := s.key(key)
	if k.version != c.If || !c.Ended.IsZero() && !k.content.Expires.Equal(c.Ended) {
		return false, nil
	}
	expires := k.content.Expires
	same := c.Holder == k.content.Holder
	k.content = c.Content
	if same && expires.After(c.Expires) {
		k.content.Expires = expires
	}
	s.next++
	k.version = fmt.Sprint(s.next)
	for hear := range s.hearers {
		(*hear)(key, c.Wake)
	}
	return true, nil
}

func (s *toy) Renew(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	alive := make([]bool, len(ls))
	for i, l := range ls {
		k, now := s.key(l.Key)
		end := now.Add(l.TTL)
		switch record := k.records[l.ID]; {
		case k.content.Holder == l.ID && k.content.Expires.After(now):
			k.content.Expires, alive[i] = later(k.content.Expires, end), true
		case record.After(now):
			k.records[l.ID], alive[i] = later(record, end), true
		}
	}
	return alive, ctx.Err()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (s *toy) Lend(ctx context.Context, ls []swaplock.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range ls {
		k, now := s.key(l.Key)
		k.records[l.ID] = later(k.records[l.ID], now.Add(l.TTL))
	}
	return ctx.Err()
}

func (s *toy) Drop(ctx context.Context, key string, ids []string, ended bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, now := s.key(key)
	for _, id := range ids {
		if !ended || !k.records[id].After(now) {
			delete(k.records, id)
		}
	}
	return ctx.Err()
}

func (s *toy) List(ctx context.Context, prefix string) iter.Seq2[swaplock.Keyed, error] {
	return func(yield func(swaplock.Keyed, error) bool) {
		s.mu.Lock()
		keys := slices.Sorted(maps.Keys(s.keys))
		s.mu.Unlock()
		for _, key := range keys {
			st, err := s.Read(ctx, key)
			if strings.HasPrefix(key, prefix) && (len(st.Document) > 0 || err != nil) &&
				!yield(swaplock.Keyed{Key: key, State: st}, err) {
				return
			}
		}
	}
}

func (s *toy) Watch(ctx context.Context, _ func() []string, wake func(key string, ids []string)) error {
	s.mu.Lock()
	s.hearers[&wake] = true
	s.mu.Unlock()
	wake("", nil)
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hearers, &wake)
	return ctx.Err()
}

// records counts the records of all keys.
func (s *toy) records() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		n += len(k.records)
	}
	return n
}
