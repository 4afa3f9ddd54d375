package swaplock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/line"
)

// maxAwait is the longest that Await waits before it looks again.
const maxAwait = time.Second

// waiter is one Await.
type waiter struct {
	token int64
	wake  chan struct{} // has room for one
}

// waiters are the Awaits of a Backend.
type waiters struct {
	mu    sync.Mutex
	byKey map[string]map[*waiter]bool
	seen  map[string]string // the versions of those keys, as last read
	begun bool              // watching
}

// Await returns when the claim of t is granted or gone, when a claim of its line may have
// expired, or after a second.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	b.watch()
	w := b.waiters.add(t.Key, t.Token)
	defer b.waiters.remove(t.Key, w)
	var got driver.Ticket
	var soonest time.Duration
	look := func(r *reading, s *line.Step) error {
		c := r.Find(t.ID)
		if c == nil {
			return r.Gone(s, t.ID)
		}
		got, soonest = r.Ticket(s, c), min(maxAwait, r.NextExpiry()-s.Mono)
		b.waiters.read(t.Key, r.Version)
		return nil
	}
	if err := b.step(ctx, t.Key, look); err != nil {
		return driver.Ticket{}, err
	}
	if got.Granted {
		return got, nil
	}
	timer := time.NewTimer(soonest)
	defer timer.Stop()
	select {
	case <-w.wake:
	case <-timer.C:
	case <-b.ctx.Done():
	case <-ctx.Done():
	}
	if err := b.step(ctx, t.Key, look); err != nil {
		return driver.Ticket{}, err
	}
	return got, nil
}

func (ws *waiters) add(key string, token int64) *waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := &waiter{token: token, wake: make(chan struct{}, 1)}
	if ws.byKey[key] == nil {
		ws.byKey[key] = make(map[*waiter]bool)
	}
	ws.byKey[key][w] = true
	return w
}

func (ws *waiters) remove(key string, w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if delete(ws.byKey[key], w); len(ws.byKey[key]) == 0 {
		delete(ws.byKey, key)
		delete(ws.seen, key)
	}
}

// read notes the version of key.
func (ws *waiters) read(key, version string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byKey[key] != nil {
		ws.seen[key] = version
	}
}

// versions are those of the keys that somebody waits for, as last read.
func (ws *waiters) versions() map[string]string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return maps.Clone(ws.seen)
}

// hear wakes those whom news of key concerns: all of them without news, and everybody without a key.
func (ws *waiters) hear(key string, news []News) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for k, waiting := range ws.byKey {
		if key != "" && k != key {
			continue
		}
		for w := range waiting {
			if len(news) > 0 && !slices.ContainsFunc(news, func(n News) bool { return n.Token == w.token }) {
				continue
			}
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

// watch has the store tell of changes from now on, unless it does already.
func (b *Backend) watch() {
	b.waiters.mu.Lock()
	defer b.waiters.mu.Unlock()
	if b.waiters.begun || b.ctx.Err() != nil {
		return
	}
	b.waiters.begun = true
	b.running.Go(func() {
		for b.ctx.Err() == nil {
			// What was not heard is found by the look that each Await ends with.
			_ = b.store.Watch(b.ctx, b.waiters.versions, b.waiters.hear)
			select {
			case <-time.After(maxAwait / 4):
			case <-b.ctx.Done():
			}
		}
	})
}
