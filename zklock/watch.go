package zklock

import "sync"

// watches are the watches of one session, one for each node: all claims that wait for
// the same node share it. They end with the TCP connection, so that each waiter reads
// its line again after an interruption.
type watches struct {
	mu     sync.Mutex
	byPath map[string]*watch
}

// watch is one watch on a node that is there.
type watch struct {
	claims map[*claim]bool // to be woken when the node is changed or deleted
	set    chan struct{}   // closed when the server has answered
	node   node            // as the server answered
	err    error
}

// watch returns a node, and has c, unless nil, woken when it is changed or deleted or the
// connection breaks. It costs a request only if the node is not watched yet.
func (s *session) watch(path string, c *claim) (node, error) {
	w, fresh := s.watches.at(path, c)
	if fresh {
		// The watch is in the list by now, so that an event that comes right after the
		// answer finds it.
		data, stat, _, err := s.zk.GetW(path)
		w.node, w.err = node{data: data, stat: stat}, toRead(path).explain(err)
		if err != nil {
			s.watches.remove(path, w)
		}
		close(w.set)
	}
	<-w.set
	return w.node, w.err
}

// at returns the watch on a node. It is fresh if there was none.
func (ws *watches) at(path string, c *claim) (w *watch, fresh bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w = ws.byPath[path]; w == nil {
		if ws.byPath == nil {
			ws.byPath = make(map[string]*watch)
		}
		w, fresh = &watch{claims: make(map[*claim]bool), set: make(chan struct{})}, true
		ws.byPath[path] = w
	}
	if c != nil {
		w.claims[c] = true
	}
	return w, fresh
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
	w := ws.byPath[path]
	delete(ws.byPath, path)
	ws.mu.Unlock()
	w.wake()
}

// fireAll wakes all who watch anything.
func (ws *watches) fireAll() {
	ws.mu.Lock()
	all := ws.byPath
	ws.byPath = nil
	ws.mu.Unlock()
	for _, w := range all {
		w.wake()
	}
}

func (w *watch) wake() {
	if w == nil {
		return
	}
	for c := range w.claims {
		c.lineChanged()
	}
}
