package quorumlock

import "sync"

// maxIdle is how many goroutines wait for more work.
const maxIdle = 32

// workers runs functions on goroutines and counts what is under way. Unlike a
// sync.WaitGroup it may be waited for while more begins.
//
// A goroutine that is done waits for the next function. A new goroutine has a small
// stack, which a request to a server grows twice: that costs a tenth of a free lock.
type workers struct {
	mu      sync.Mutex
	running int
	none    chan struct{} // closed when running becomes 0; nil if nobody waits
	idling  int
	ended   bool
	next    chan func() // to a goroutine that waits
}

// add counts work that the caller does itself, until done.
func (w *workers) add() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running++
}

func (w *workers) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; w.running == 0 && w.none != nil {
		close(w.none)
		w.none = nil
	}
}

// run calls f on a goroutine.
func (w *workers) run(f func()) {
	w.mu.Lock()
	w.running++
	idle := w.idling > 0
	if idle {
		w.idling--
	}
	w.mu.Unlock()
	if idle {
		w.next <- f
		return
	}
	go w.work(f)
}

// work calls f, and then what run sends, until there are enough that wait.
func (w *workers) work(f func()) {
	for ok := true; ok; {
		f()
		w.done()
		if !w.idle() {
			return
		}
		f, ok = <-w.next
	}
}

// idle reports whether the goroutine shall wait for more work.
func (w *workers) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.idling == maxIdle {
		return false
	}
	w.idling++
	return true
}

// end ends the goroutines that wait. Nothing is run afterwards.
func (w *workers) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended = true
		close(w.next)
	}
}

// finished returns a channel that is closed when nothing is under way.
func (w *workers) finished() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == 0 {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if w.none == nil {
		w.none = make(chan struct{})
	}
	return w.none
}
