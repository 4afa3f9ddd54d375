package transport

import (
	"slices"
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
	under   []*request // under way
	waking  bool       // a timer will look at what is pending
}

// request is one that is under way.
type request struct {
	began time.Time
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
	return q.begin()
}

// end is called when a request has come back.
func (q *queue) end(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(r)
	q.flush()
}

// run sends a batch, and then what is pending, until there is nothing.
func (q *queue) run(r *request, batch []*Command) {
	for batch != nil {
		q.send(batch)
		r, batch = q.next(r)
	}
}

// next ends a request and begins another for what is pending.
func (q *queue) next(r *request) (*request, []*Command) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(r)
	if len(q.pending) == 0 {
		return nil, nil
	}
	if r = q.begin(); r == nil {
		return nil, nil
	}
	return r, q.take()
}

// The methods below are called with mu held.

// flush sends what is pending, as far as there is room for requests. If there is none,
// a timer looks again: the requests may be stuck on connections that are dead.
func (q *queue) flush() {
	for len(q.pending) > 0 {
		r := q.begin()
		if r == nil {
			q.wakeLater()
			return
		}
		go q.run(r, q.take())
	}
}

// begin adds a request; nil if there is no room.
func (q *queue) begin() *request {
	now := time.Now()
	active := 0
	for _, r := range q.under {
		if now.Sub(r.began) < overdue {
			active++
		}
	}
	if active >= maxActive || len(q.under) >= maxRequests {
		return nil
	}
	r := &request{now}
	q.under = append(q.under, r)
	return r
}

func (q *queue) remove(r *request) {
	q.under = slices.DeleteFunc(q.under, func(o *request) bool { return o == r })
}

// take takes out as much of what is pending as one request carries.
func (q *queue) take() []*Command {
	n := min(len(q.pending), maxBatch)
	batch := q.pending[:n:n]
	q.pending = q.pending[n:]
	if len(q.pending) == 0 {
		q.pending = nil // the batch has its array
	}
	return batch
}

func (q *queue) wakeLater() {
	if q.waking {
		return
	}
	q.waking = true
	time.AfterFunc(overdue, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.waking = false
		q.flush()
	})
}
