package redislock

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// waits are the claims of this Backend that wait, or may be about to: from before
// an Enter is sent until its claim is granted, gone or left. A push for any other
// claim is not heard.
type waits struct {
	mu sync.Mutex
	by map[string]*wait

	spare []*wait // for the next claims that are granted at once
}

// spareWaits is how many are kept.
const spareWaits = 512

// wait is what is known of one such claim.
type wait struct {
	granted bool
	mark    driver.Mark
	mixed   bool
	gone    *driver.ErrGone
	stale   bool // its standing has to be read before anything else

	epoch uint64    // of the subscription, when its standing was last asked for
	ends  time.Time // its lease, as far as is known here
	due   time.Time // something in line may end then
	far   time.Duration

	bell chan struct{} // rings when a message changes something
}

// expect is called before an Enter is sent.
func (w *waits) expect(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = make(map[string]*wait)
	}
	n := len(w.spare)
	if n == 0 {
		w.by[id] = &wait{}
		return
	}
	w.by[id], w.spare = w.spare[n-1], w.spare[:n-1]
}

// forget is called when a claim waits no more.
func (w *waits) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.by[id]
	if c == nil {
		return
	}
	delete(w.by, id)
	if c.bell == nil && len(w.spare) < spareWaits {
		*c = wait{}
		w.spare = append(w.spare, c)
	}
}

// note keeps what an answer said of a waiting claim. A push that came meanwhile
// stays.
func (w *waits) note(id string, epoch uint64, t *driver.Ticket, sent, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.find(id)
	c.epoch, c.stale = epoch, false
	c.ends, c.due = sent.Add(t.Left), due
	c.far = time.Duration(t.Ahead) * time.Millisecond
}

// find returns what is known of a claim; of one that was unknown, that its
// standing has to be read. It is called under mu.
func (w *waits) find(id string) *wait {
	c := w.by[id]
	if c == nil {
		if w.by == nil {
			w.by = make(map[string]*wait)
		}
		c = &wait{stale: true}
		w.by[id] = c
	}
	return c
}

// look returns a copy of what is known of a claim, with a bell.
func (w *waits) look(id string) wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.find(id)
	if c.bell == nil {
		c.bell = make(chan struct{}, 1)
	}
	return *c
}

// hear changes what is known of a claim, if anybody cares, and rings its bell.
func (w *waits) hear(id string, change func(*wait)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.by[id]
	if c == nil {
		return
	}
	change(c)
	if c.bell == nil {
		return
	}
	select {
	case c.bell <- struct{}{}:
	default:
	}
}
