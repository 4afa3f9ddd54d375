package redislock

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// waiterRegistry holds claims from before an Enter is sent until the claim is granted, gone or
// left. Messages for other claims are dropped.
type waiterRegistry struct {
	mu   sync.Mutex
	byID map[string]*waiter
}

// waiter is what is known of one such claim.
type waiter struct {
	granted bool
	mark    string
	gone    *driver.GoneError
	stale   bool // its standing has to be read before anything else

	epoch uint64    // of the subscription, when its standing was last asked for
	ends  time.Time // its lease, as far as is known here
	due   time.Time // something in line may end then

	changed chan struct{} // has something in it when a message has changed the above
}

// expect adds a claim whose Enter is about to be sent.
func (r *waiterRegistry) expect(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[id] = &waiter{}
}

func (r *waiterRegistry) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, id)
}

// setStanding keeps what an answer said of a waiting claim. A message that came
// meanwhile stays.
func (r *waiterRegistry) setStanding(id string, epoch uint64, t *driver.Ticket, sent, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.findLocked(id)
	w.epoch, w.stale = epoch, false
	w.ends, w.due = sent.Add(t.Left), due
}

// get returns a copy of what is known of a claim, with a channel for changes.
func (r *waiterRegistry) get(id string) waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.findLocked(id)
	if w.changed == nil {
		w.changed = make(chan struct{}, 1)
	}
	return *w
}

// notify changes what is known of a claim that waits, and wakes its Await.
func (r *waiterRegistry) notify(id string, change func(*waiter)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.byID[id]; w != nil {
		change(w)
		w.wake()
	}
}

func (r *waiterRegistry) wakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.byID {
		w.wake()
	}
}

func (w *waiter) wake() {
	select {
	case w.changed <- struct{}{}:
	default: // it has something in it, or nobody waits
	}
}

// findLocked returns a claim. One that is unknown is added: its standing has to be read.
func (r *waiterRegistry) findLocked(id string) *waiter {
	w := r.byID[id]
	if w == nil {
		w = &waiter{stale: true}
		r.byID[id] = w
	}
	return w
}
