package quorumlock

import "sync"

// workers runs functions on goroutines and counts what is under way. Unlike a
// sync.WaitGroup it may be waited for while more begins.
//
// A goroutine that is done waits for the next function. A new goroutine has a small
// stack, which a request to a server grows twice: that costs a tenth of a free lock.
type workers struct {
	next chan func()   // to a goroutine that waits
	idle chan struct{} // one for each that may wait

	mu      sync.Mutex
	running int
	none    chan struct{} // closed when running becomes 0; nil if nobody waits
}

// maxIdle is how many goroutines wait for more work.
const maxIdle = 32

func newWorkers() *workers {
	return &workers{next: make(chan func()), idle: make(chan struct{}, maxIdle)}
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
	w.add()
	select {
	case w.next <- f:
	default:
		go w.work(f)
	}
}

// work calls f, and then what run sends, until there are enough that wait.
func (w *workers) work(f func()) {
	for ok := true; ok; {
		f()
		w.done()
		select {
		case w.idle <- struct{}{}:
		default:
			return
		}
		f, ok = <-w.next
		<-w.idle
	}
}

// end ends the goroutines that wait. Nothing is run afterwards.
func (w *workers) end() { close(w.next) }

// finished returns a channel that is closed when nothing is under way.
func (w *workers) finished() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.none != nil {
		return w.none
	}
	none := make(chan struct{})
	if w.running == 0 {
		close(none)
	} else {
		w.none = none
	}
	return none
}
