// Package dispatch calls a function with one event after another, without keeping those who send
// events waiting.
package dispatch

import (
	"sync"
	"time"
)

// most bounds how many events wait for a slow function.
const most = 4096

// Dispatcher calls On with each event. Its goroutine ends when no event waits, so an idle one has
// none. E is a struct.
type Dispatcher[E any] struct {
	On func(E) // set before the first Send; nil: no events are wanted

	mu      sync.Mutex
	queue   []E
	dropped uint64
	running chan struct{} // closed when the goroutine ends; nil while none runs
}

// Send queues one event, which fill completes: dropped is how many events were lost before it,
// because On was too slow.
func (d *Dispatcher[E]) Send(e E, fill func(e *E, dropped uint64)) {
	if d.On == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) >= most {
		d.dropped++
		return
	}
	d.queue = append(d.queue, e)
	fill(&d.queue[len(d.queue)-1], d.dropped)
	d.dropped = 0
	if d.running == nil {
		d.running = make(chan struct{})
		go d.run()
	}
}

func (d *Dispatcher[E]) run() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			close(d.running)
			d.queue, d.running = nil, nil
			d.mu.Unlock()
			return
		}
		var none E
		e := d.queue[0]
		d.queue[0] = none
		d.queue = d.queue[1:]
		d.mu.Unlock()
		d.On(e)
	}
}

// Drain waits until no event is left, and at most for limit: On may wait for the caller.
func (d *Dispatcher[E]) Drain(limit time.Duration) {
	d.mu.Lock()
	running := d.running
	d.mu.Unlock()
	if running == nil {
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-running:
	case <-t.C:
	}
}
