package zklock

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
)

// watch is one watch on one node that is there. All claims of a session that wait for
// the same node share it. The client sets it again after a broken connection, and
// the server then tells what happened meanwhile.
type watch struct {
	fired chan struct{} // closed when the node is gone or changed, or the session over
	data  []byte        // of the node, as it was then
	stat  *zk.Stat
}

// watch returns the watch on node, or nil if the node is not there. It costs a
// request only if there is none yet.
func (b *Backend) watch(ctx context.Context, conn client, s *session, node string) (*watch, error) {
	s.mu.Lock()
	w := s.watches[node]
	s.mu.Unlock()
	if w != nil {
		return w, nil
	}
	// Get and not Exists: that would leave a watch behind where there is no node.
	type answer struct {
		data   []byte
		stat   *zk.Stat
		events <-chan zk.Event
	}
	a, err := call(ctx, b, func() (answer, error) {
		data, stat, events, err := conn.GetW(node)
		return answer{data, stat, events}, err
	})
	if err == zk.ErrNoNode {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w = &watch{fired: make(chan struct{}), data: a.data, stat: a.stat}
	s.mu.Lock()
	if other := s.watches[node]; other != nil {
		w = other // set at the same time; ours fires into the void
		s.mu.Unlock()
		return w, nil
	}
	s.watches[node] = w
	s.mu.Unlock()
	b.background(func(ctx context.Context) {
		select {
		case <-a.events:
		case <-s.over:
		case <-ctx.Done():
		}
		s.mu.Lock()
		delete(s.watches, node)
		s.mu.Unlock()
		close(w.fired)
	})
	return w, nil
}

// pause waits for d, or until it is useless to.
func pause(ctx context.Context, s *session, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.over:
	}
}

// retryEvery is how long what is done behind rests after it was not answered.
const retryEvery = 100 * time.Millisecond
