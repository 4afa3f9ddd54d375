package zklock

import (
	"context"
	"errors"
	"sync"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// watches are the watches of one client, one for each node: all claims that wait for
// the same node share it. They end with the TCP connection, so that each waiter reads
// its line again after an interruption.
type watches struct {
	mu     sync.Mutex
	byPath map[string]*watch
}

// watch is one watch on a node that is there.
type watch struct {
	fired chan struct{} // closed when the node is changed or deleted, or the connection is broken
	set   chan struct{} // closed when the server has answered
	node  node          // as the server answered
	err   error
}

// watch returns the watch on a node, or nil if the node is not there. It costs a
// request only if the node is not watched yet.
func (cl *client) watch(ctx context.Context, path string) (*watch, error) {
	w, fresh := cl.watches.at(path)
	if fresh {
		go cl.setWatch(path, w)
	}
	select {
	case <-w.set:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-cl.of.closed:
		return nil, driver.ErrClosed
	}
	if errors.Is(w.err, zk.ErrNoNode) {
		return nil, nil
	}
	return w, w.err
}

// setWatch asks the server to watch a node. The watch is in the list before that, so
// that an event that comes right after the answer finds it.
func (cl *client) setWatch(path string, w *watch) {
	data, stat, _, err := cl.zk.GetW(path)
	w.node, w.err = node{data, stat}, toRead(path).explain(err)
	if err != nil {
		cl.watches.remove(path, w)
	}
	close(w.set)
}

// at returns the watch on a node. It is fresh if there was none.
func (ws *watches) at(path string) (w *watch, fresh bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byPath[path]; w != nil {
		return w, false
	}
	if ws.byPath == nil {
		ws.byPath = make(map[string]*watch)
	}
	w = &watch{fired: make(chan struct{}), set: make(chan struct{})}
	ws.byPath[path] = w
	return w, true
}

func (ws *watches) remove(path string, w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byPath[path] == w {
		delete(ws.byPath, path)
	}
}

// fire wakes those who watch a node.
func (ws *watches) fire(path string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byPath[path]; w != nil {
		delete(ws.byPath, path)
		close(w.fired)
	}
}

// fireAll wakes all who watch anything.
func (ws *watches) fireAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byPath {
		close(w.fired)
	}
	ws.byPath = nil
}
