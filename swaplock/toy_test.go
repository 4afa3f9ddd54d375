package swaplock_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/swaplock"
)

// toy is the smallest store that compares and swaps: a map behind a mutex.
type toy struct {
	mu      sync.Mutex
	next    int
	keys    map[string]*toyKey
	hearers map[*func(key string, news []swaplock.News)]bool
}

type toyKey struct {
	version string
	content swaplock.Content
	records map[string]time.Time

	arrivals []swaplock.Arrival
}

func newToy() *toy {
	return &toy{keys: map[string]*toyKey{}, hearers: map[*func(string, []swaplock.News)]bool{}}
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

func (s *toy) Read(ctx context.Context, key string, arrivals int) (swaplock.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, now := s.key(key)
	st := swaplock.State{Version: k.version, Now: now, Content: k.content, Records: maps.Clone(k.records)}
	st.Arrivals = slices.Clone(k.arrivals)
	if arrivals >= 0 && arrivals < len(st.Arrivals) {
		st.Arrivals, st.More = st.Arrivals[:arrivals], true
	}
	return st, ctx.Err()
}

func (s *toy) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, now := s.key(key)
	if k.version != c.If || c.IfLast != 0 && k.content.Last != c.IfLast ||
		!c.Ended.IsZero() && !k.content.Expires.Equal(c.Ended) ||
		!c.Before.IsZero() && !now.Before(c.Before) {
		return "", nil
	}
	before := k.content
	k.content = c.Content
	k.content.Last = max(before.Last, c.Last)
	k.arrivals = k.arrivals[c.Arrivals:]
	if c.Holder == before.Holder {
		k.content.Expires = driverutil.Later(before.Expires, c.Expires)
	}
	for _, id := range c.Drop {
		delete(k.records, id)
	}
	for _, l := range c.Lend {
		k.records[l.ID] = driverutil.Later(k.records[l.ID], now.Add(l.TTL))
	}
	s.next++
	k.version = fmt.Sprint(s.next)
	s.say(key, c.News)
	return k.version, nil
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
			k.content.Expires, alive[i] = driverutil.Later(k.content.Expires, end), true
		case record.After(now):
			k.records[l.ID], alive[i] = driverutil.Later(record, end), true
		}
	}
	return alive, ctx.Err()
}

func (s *toy) Purge(ctx context.Context, key string, ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, now := s.key(key)
	for _, id := range ids {
		if !k.records[id].After(now) {
			delete(k.records, id)
		}
	}
	return ctx.Err()
}

func (s *toy) Forget(ctx context.Context, last int64) (stale []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, k := range s.keys {
		maps.DeleteFunc(k.records, func(_ string, end time.Time) bool { return !end.After(time.Now()) })
		switch c := &k.content; {
		case c.Last >= last:
		case len(c.Document)+len(k.arrivals) > 0:
			stale = append(stale, key)
		case c.Mark == "" && len(k.records) == 0:
			delete(s.keys, key)
		}
	}
	return stale, ctx.Err()
}

func (s *toy) List(ctx context.Context, prefix string) iter.Seq2[swaplock.Keyed, error] {
	return func(yield func(swaplock.Keyed, error) bool) {
		s.mu.Lock()
		keys := slices.Sorted(maps.Keys(s.keys))
		s.mu.Unlock()
		for _, key := range keys {
			st, err := s.Read(ctx, key, -1)
			if strings.HasPrefix(key, prefix) && (len(st.Document)+len(st.Arrivals) > 0 || err != nil) &&
				!yield(swaplock.Keyed{Key: key, State: st}, err) {
				return
			}
		}
	}
}

func (s *toy) Watch(ctx context.Context, _ func() map[string]string, hear func(string, []swaplock.News)) error {
	s.mu.Lock()
	s.hearers[&hear] = true
	s.mu.Unlock()
	hear("", nil)
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hearers, &hear)
	return ctx.Err()
}

// say tells all who listen, with mu held.
func (s *toy) say(key string, news []swaplock.News) {
	for hear := range s.hearers {
		(*hear)(key, news)
	}
}

// tell is news that any client of the store might send.
func (s *toy) tell(key string, news []swaplock.News) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say(key, news)
}

// list has all keys.
func (s *toy) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.keys))
}

// polled has no push.
type polled struct{ *toy }

func (s polled) Watch(
	ctx context.Context, waiting func() map[string]string, hear func(string, []swaplock.News),
) error {
	hear("", nil)
	for {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		for key, version := range waiting() {
			if st, err := s.Read(ctx, key, 0); err == nil && st.Version != version {
				hear(key, nil)
			}
		}
	}
}

// onlySwaps hides that claims can arrive.
type onlySwaps struct{ swaplock.Store }

// notes takes messages, and hides that claims can arrive.
type notes struct {
	swaplock.Store // of toy, perhaps far away
	toy            *toy
	way            time.Duration // one way
}

func (s notes) Read(ctx context.Context, key string, _ int) (swaplock.State, error) {
	return s.Store.Read(ctx, key, -1)
}

func (s notes) Message(ctx context.Context, key string, m []byte) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	time.Sleep(s.way)
	defer time.Sleep(s.way)
	s.toy.mu.Lock()
	defer s.toy.mu.Unlock()
	k, now := s.toy.key(key)
	k.arrivals = append(slices.Clip(k.arrivals), swaplock.Arrival{Message: true, Claim: m, At: now})
	return true, nil
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

func (s *toy) Message(ctx context.Context, key string, m []byte) (added bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, now := s.key(key); ctx.Err() == nil && len(k.content.Document)+len(k.arrivals) > 0 {
		k.arrivals = append(slices.Clip(k.arrivals), swaplock.Arrival{Message: true, Claim: m, At: now})
		added = true
	}
	return added, ctx.Err()
}

func (s *toy) Arrive(ctx context.Context, key string, a *swaplock.Arrival) (*swaplock.Place, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, now := s.key(key)
	c := &k.content
	free := len(c.Document)+len(k.arrivals) == 0
	same := func(b swaplock.Arrival) bool { return b.ID == a.ID }
	if !free && (!a.Waits || !now.Before(c.Open) || c.Capacity != a.Capacity ||
		bytes.Contains(c.Document, []byte(`"`+a.ID+`"`)) || slices.ContainsFunc(k.arrivals, same)) {
		return nil, nil
	}
	in := *a
	in.Token, in.At = max(c.Last+1, now.UnixMicro()), now
	p := &swaplock.Place{
		Token: in.Token, At: now, Granted: free, Ahead: bytes.Count(c.Document, []byte(`"ttl"`)) + len(k.arrivals),
	}
	c.Last = in.Token + a.Span - 1
	k.arrivals = append(slices.Clip(k.arrivals), in)
	if free {
		s.next++
		k.version = fmt.Sprint(s.next)
		c.Holder, c.Expires, c.Open, c.Capacity = a.ID, now.Add(a.TTL), time.Time{}, a.Capacity
		if a.Full {
			c.Open = c.Expires
		}
	} else if end := now.Add(a.WaitTTL); end.Before(c.Open) {
		c.Open = end
	}
	p.Version, p.Open, p.Mark, p.MarkedBy = k.version, c.Open, c.Mark, c.MarkedBy
	return p, nil
}

func (s *toy) Withdraw(ctx context.Context, key string, a *swaplock.Arrival) (done bool, err error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, now := s.key(key)
	i := slices.IndexFunc(k.arrivals, func(b swaplock.Arrival) bool { return b.ID == a.ID && b.Token == a.Token })
	if i < 0 || !now.Before(k.content.Open) {
		return false, nil
	}
	s.next++
	k.version = fmt.Sprint(s.next)
	k.arrivals = slices.Concat(k.arrivals[:i], k.arrivals[i+1:])
	if a.Lent {
		delete(k.records, a.ID)
	}
	return true, nil
}

// opened returns a Backend over store, which the test closes in the end.
func opened(t testing.TB, store swaplock.Store) *swaplock.Backend {
	b := swaplock.New(store)
	t.Cleanup(func() { b.Close() })
	return b
}
