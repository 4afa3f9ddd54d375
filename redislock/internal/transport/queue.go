package transport

import (
	"sync"
	"time"
)

const (
	// maxActive is how many requests are under way to one server while all goes well:
	// while one is answered, the next batch fills.
	maxActive = 2
	// maxRequests is how many there may be if some do not come back.
	maxRequests = 16
	// overdue is how long a request is under way when it counts as stuck.
	overdue = 20 * time.Millisecond
	// maxBatch bounds the commands in one request.
	maxBatch = 200
)

// queue holds the commands for one server until a request may carry them. A server
// that hangs holds up its own queue.
type queue struct {
	send func([]*Command) // returns when each command has its answer

	mu      sync.Mutex
	pending []*Command
	active  int // requests under way that are not stuck
	total   int // requests under way
}

// request is one that is under way.
type request struct {
	timer *time.Timer
	stuck bool
	ended bool
}

func newQueue(send func([]*Command)) *queue { return &queue{send: send} }

// enqueue sends c as soon as there is room for a request.
func (q *queue) enqueue(c *Command) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, c)
	q.flush()
}

// drain takes out the commands that have not been sent.
func (q *queue) drain() []*Command {
	q.mu.Lock()
	defer q.mu.Unlock()
	pending := q.pending
	q.pending = nil
	return pending
}

// tryBegin makes room for a request of the caller, who calls end; nil if there is none.
func (q *queue) tryBegin() *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hasRoom() {
		return nil
	}
	return q.begin()
}

// end is called when a request has come back.
func (q *queue) end(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.timer.Stop()
	r.ended = true
	q.total--
	if !r.stuck {
		q.active--
	}
	q.flush()
}

// The methods below are called with mu held.

func (q *queue) hasRoom() bool { return q.active < maxActive && q.total < maxRequests }

func (q *queue) begin() *request {
	q.active++
	q.total++
	r := &request{}
	r.timer = time.AfterFunc(overdue, func() { q.giveUpOn(r) })
	return r
}

// flush sends what is pending, as far as there is room for requests.
func (q *queue) flush() {
	for len(q.pending) > 0 && q.hasRoom() {
		n := min(len(q.pending), maxBatch)
		batch := q.pending[:n:n]
		q.pending = q.pending[n:]
		if len(q.pending) == 0 {
			q.pending = nil // the batch has its array
		}
		r := q.begin()
		go func() {
			defer q.end(r)
			q.send(batch)
		}()
	}
}

// giveUpOn makes room for another request beside one that is stuck.
func (q *queue) giveUpOn(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.ended {
		return
	}
	r.stuck = true
	q.active--
	q.flush()
}
