package quorumlock

import "sync"

// work counts what is under way. Unlike a sync.WaitGroup it may be waited for while
// more begins.
type work struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n becomes 0; nil if nobody waits
}

func (w *work) add() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
}

func (w *work) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n--; w.n == 0 && w.none != nil {
		close(w.none)
		w.none = nil
	}
}

// run runs f on a goroutine.
func (w *work) run(f func()) {
	w.add()
	go func() {
		defer w.done()
		f()
	}()
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// idle is closed when nothing is under way.
func (w *work) idle() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == 0 {
		return closed
	}
	if w.none == nil {
		w.none = make(chan struct{})
	}
	return w.none
}
