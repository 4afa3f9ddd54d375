package natslock

import (
	"context"
	"encoding/json"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fencelock/fencelock/swaplock"
)

// forgetMost is how many names are looked at in one go.
const forgetMost = 1000

// Forget removes idle lines, and what is left of leases and messages that are not needed. It looks at some of them.
func (s *store) Forget(ctx context.Context, before int64) (stale []string, err error) {
	all, now, err := s.list(ctx, ">")
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, name := range all[:min(len(all), forgetMost)] {
		if err != nil {
			break
		}
		var key string
		var own uint64
		if key, own, err = s.old(ctx, name, now, before); key != "" {
			stale = append(stale, key)
		} else if own != 0 {
			s.remove(name, own)
		}
	}
	return stale, err
}

// old returns the revision of name if nobody needs it any more, or the key of an idle line with claims.
func (s *store) old(ctx context.Context, name string, now time.Time, before int64) (key string, own uint64, err error) {
	m, err := s.get(ctx, name)
	if m == nil || err != nil {
		return "", 0, err
	}
	parts := strings.Split(name, ".")
	key = unescape(parts[1])
	l, revision, err := s.line(ctx, key) // after m: a lease that is not in its line now never will be
	if err != nil {
		return "", 0, err
	}
	idle := revision == m.Revision && l.Last < before
	switch parts[0] {
	case "line":
		if idle && len(l.Document) > 0 {
			return key, 0, nil
		}
		idle = idle && l.Mark == ""
	case "lease":
		idle = true
		for _, e := range l.Leases {
			idle = idle && e.Name != parts[2]
		}
	case "note":
		idle = m.Revision <= l.Done || now.Sub(m.At) > 24*time.Hour
	}
	if !idle {
		m.Revision = 0
	}
	return "", m.Revision, nil
}

// List yields the lines whose keys begin with prefix.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[swaplock.Keyed, error] {
	return func(yield func(swaplock.Keyed, error) bool) {
		all, _, err := s.list(ctx, "line.*")
		if err != nil {
			yield(swaplock.Keyed{}, err)
			return
		}
		var keys []string
		for _, name := range all {
			if key := unescape(last(name)); strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			st, err := s.Read(ctx, key, -1)
			if (err != nil || len(st.Document) > 0) && !yield(swaplock.Keyed{Key: key, State: st}, err) || err != nil {
				return
			}
		}
	}
}

// told is a message to those who Watch.
type told struct {
	Key  []byte          `json:"key"`
	News []swaplock.News `json:"news"`
}

// tell has those who Watch hear. What is lost is found by a look.
func (s *store) tell(key string, news []swaplock.News) {
	if text, err := json.Marshal(told{[]byte(key), news}); err == nil {
		_ = s.js.Conn().Publish(s.news(), text)
	}
}

func (s *store) news() string { return "fencelock." + s.name + ".news" }

// Watch hears of swaps until the connection breaks.
func (s *store) Watch(ctx context.Context, _ func() map[string]string, hear func(string, []swaplock.News)) error {
	if s.invalid != nil {
		return s.invalid
	}
	nc := s.js.Conn()
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	sub, err := nc.Subscribe(s.news(), func(m *nats.Msg) {
		var t told
		if json.Unmarshal(m.Data, &t) == nil {
			hear(string(t.Key), t.News)
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	flush, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := nc.FlushWithContext(flush); err != nil {
		return err
	}
	hear("", nil)
	select {
	case <-status: // what was told before it was connected again is lost
	case <-ctx.Done():
	}
	return ctx.Err()
}
