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
	began   []time.Time // of the requests under way
	waking  bool        // a timer will look at what is pending: it runs while anything is
}

func newQueue(send func([]*Command)) *queue { return &queue{send: send} }

// enqueue sends commands as soon as there is room for a request.
func (q *queue) enqueue(commands ...*Command) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waited := len(q.pending) > 0
	q.pending = append(q.pending, commands...)
	if !waited {
		q.flush()
	}
}

// drain takes out the commands that have not been sent.
func (q *queue) drain() []*Command {
	q.mu.Lock()
	defer q.mu.Unlock()
	pending := q.pending
	q.pending = nil
	return pending
}

// tryBegin makes room for a request of the caller, who calls end with what it returns. It
// reports whether there is room.
func (q *queue) tryBegin() (began time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.begin()
}

// end is called when a request has come back.
func (q *queue) end(began time.Time) {
	if began, batch := q.next(began); batch != nil {
		go q.run(began, batch)
	}
}

// run sends a batch, and then what is pending, until there is nothing.
func (q *queue) run(began time.Time, batch []*Command) {
	for batch != nil {
		q.send(batch)
		began, batch = q.next(began)
	}
}

// next ends a request and begins another for what is pending.
func (q *queue) next(ended time.Time) (began time.Time, batch []*Command) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.began, ended)
	q.began = slices.Delete(q.began, i, i+1)
	if len(q.pending) == 0 {
		return began, nil
	}
	began, ok := q.begin()
	if !ok {
		return began, nil
	}
	return began, q.take()
}

// flush, begin, take and wakeLater are called with mu held.

// flush sends what is pending, as far as there is room for requests. If there is none,
// a timer looks again: the requests may be stuck on connections that are dead.
func (q *queue) flush() {
	for len(q.pending) > 0 {
		began, ok := q.begin()
		if !ok {
			q.wakeLater()
			return
		}
		go q.run(began, q.take())
	}
}

// begin adds a request. It reports whether there is room.
func (q *queue) begin() (now time.Time, ok bool) {
	now = time.Now()
	active := 0
	for _, began := range q.began {
		if now.Sub(began) < overdue {
			active++
		}
	}
	if active >= maxActive || len(q.began) >= maxRequests {
		return now, false
	}
	q.began = append(q.began, now)
	return now, true
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
