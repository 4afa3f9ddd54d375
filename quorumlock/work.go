package quorumlock

import "sync"

// task is something to be done on a goroutine of its own.
type task interface{ run() }

// simply is a task that is only a function.
type simply func()

func (f simply) run() { f() }

// parked is how many goroutines wait for the next task, at most. A new goroutine has a
// small stack, and asking a server makes it grow, twice: that costs as much as half of
// the request.
const parked = 32

// work does tasks, and counts those that are under way. Unlike a sync.WaitGroup it may be
// waited for while more begin.
type work struct {
	mu    sync.Mutex
	n     int
	none  chan struct{} // closed when n becomes 0; nil if nobody waits
	idle  []chan task   // of goroutines that wait for the next task
	ended bool          // none shall wait any longer
}

// add counts something as under way that its caller does.
func (w *work) add() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
}

func (w *work) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.less()
}

// less counts one less. w.mu is held.
func (w *work) less() {
	if w.n--; w.n == 0 && w.none != nil {
		close(w.none)
		w.none = nil
	}
}

// run does t on a goroutine.
func (w *work) run(t task) {
	w.mu.Lock()
	w.n++
	var next chan task
	if last := len(w.idle) - 1; last >= 0 {
		next, w.idle = w.idle[last], w.idle[:last]
	}
	w.mu.Unlock()
	if next != nil {
		next <- t // which has room: who waits there has been taken from the list
		return
	}
	go w.labour(t)
}

// labour does tasks until it is not wanted any longer.
func (w *work) labour(t task) {
	for next := make(chan task, 1); t != nil; t = <-next {
		t.run()
		if !w.park(next) {
			return
		}
	}
}

// park counts a task as done, and reports whether its goroutine shall wait for another.
func (w *work) park(next chan task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.less()
	if w.ended || len(w.idle) >= parked {
		return false
	}
	w.idle = append(w.idle, next)
	return true
}

// end ends the goroutines that wait for a task.
func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// settled is closed when nothing is under way.
func (w *work) settled() <-chan struct{} {
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
