package etcdlock

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// watch waits for the claims that block a waiting claim. It lasts from one Await to the
// next, so that a wait costs one watch however long it is.
type watch struct {
	keys    keyRange         // a range without an end is one key
	weights map[string]int64 // by key; nil if any key that is deleted counts
	excess  int64            // how much of the weights must leave
	from    int64            // the first revision that was not seen

	events   clientv3.WatchChan // nil if it is not open
	cancel   context.CancelFunc
	failures int // watches in a row that broke
}

// watch watches what blocks the claim. For a writer that is the claim before it, for a
// reader the nearest writer before it: the claim before a reader may be a reader that
// stays. For a claim on a semaphore it is all claims before it.
func (p *position) watch() *watch {
	if p.weights != nil {
		return &watch{keys: p.line.permits(), weights: p.weights, excess: p.excess, from: p.at + 1}
	}
	return &watch{keys: keyRange{from: p.blocker}, from: p.at + 1}
}

// wait returns true when a deleted key may have made room, and false after maxAwait or
// when the watch broke: then only a read can tell.
func (w *watch) wait(ctx context.Context, b *Backend) (free bool, err error) {
	timer := time.NewTimer(maxAwait)
	defer timer.Stop()
	if w.events == nil {
		w.open(ctx, b)
	}
	for {
		select {
		case e, ok := <-w.events:
			if !ok || e.Err() != nil { // compacted, no leader, closed
				w.close()
				w.failures++
				return false, w.backOff(ctx)
			}
			w.failures = 0
			if w.makesRoom(e) {
				return true, nil
			}
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// open starts the watch. That takes a round trip, and ends with ctx or after maxAwait.
// The open watch goes on until close, or until the Backend is closed.
func (w *watch) open(ctx context.Context, b *Backend) {
	watching, cancel := context.WithCancel(b.ctx)
	w.cancel = cancel
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	late := time.AfterFunc(maxAwait, cancel)
	defer late.Stop()
	opts := []clientv3.OpOption{clientv3.WithRev(w.from), clientv3.WithFilterPut()}
	if w.keys.end != "" {
		opts = append(opts, clientv3.WithRange(w.keys.end))
	}
	w.events = b.etcd.Watch(watching, w.keys.from, opts...)
}

func (w *watch) close() {
	if w != nil && w.cancel != nil {
		w.cancel()
		w.cancel, w.events = nil, nil
	}
}

// backOff pauses after the second watch in a row that broke, and after each later one.
func (w *watch) backOff(ctx context.Context) error {
	if w.failures > 1 {
		pause := time.NewTimer(min(maxAwait, 10*time.Millisecond<<min(w.failures, 10)))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// makesRoom reports whether the deleted keys may be enough for a grant.
func (w *watch) makesRoom(e clientv3.WatchResponse) bool {
	for _, event := range e.Events {
		if event.Type != clientv3.EventTypeDelete {
			continue
		}
		if w.weights == nil {
			return true
		}
		name := string(event.Kv.Key)
		w.excess -= w.weights[name]
		delete(w.weights, name)
		if w.excess <= 0 {
			return true
		}
	}
	return false
}

// watchSet keeps the watches of waiting claims from one Await to the next. An Await takes
// a watch out, so that no two calls use it. The zero value is ready.
type watchSet struct {
	mu      sync.Mutex
	byClaim map[driver.ClaimRef]*watch
}

// put keeps w, and closes the watch that it replaces.
func (s *watchSet) put(ref driver.ClaimRef, w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byClaim == nil {
		s.byClaim = make(map[driver.ClaimRef]*watch)
	}
	if old := s.byClaim[ref]; old != w {
		old.close()
	}
	s.byClaim[ref] = w
}

// take returns the watch of a claim, or nil.
func (s *watchSet) take(ref driver.ClaimRef) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.byClaim[ref]
	delete(s.byClaim, ref)
	return w
}
