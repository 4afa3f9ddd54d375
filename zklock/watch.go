package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

// watch is one watch on one node that is there. All claims of a session that wait for
// the same node share it. It ends with its connection.
type watch struct {
	node                // as it was then
	fired chan struct{} // closed when the node is gone or changed, or the connection is broken
}

// watch returns the watch on node, or nil if the node is not there. It costs a
// request only if there is none yet.
func (b *Backend) watch(ctx context.Context, conn client, node string) (*watch, error) {
	x, err := conn.Watch(node).wait(ctx, b)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return x, err
}

// watching returns the watch on a node, if there is one.
func (f *phone) watching(node string) *watch {
	f.link.mu.Lock()
	w := f.wire
	f.link.mu.Unlock()
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watches[node]
}

// watch notes that the server watches a node for us. The reader calls it with the answer
// that says so, before it reads what comes after.
func (w *wire) watch(path string, n node) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.watches[path]
	if x != nil {
		return x // it was asked for at the same time
	}
	x = &watch{n, make(chan struct{})}
	if w.over {
		close(x.fired)
		return x
	}
	w.watches[path] = x
	return x
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
