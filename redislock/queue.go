package redislock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxActive is how many requests of their callers' goroutines and batches are under way to one server while all
	// goes well.
	maxActive = 4
	// maxBatches is how many of them are batches: meanwhile the next one gathers.
	maxBatches = 2
	// overdue is how long a batch is under way when it gives its place to another: its connection may
	// be dead.
	overdue = 20 * time.Millisecond
	// maxLate is how many batches may be under way beside those.
	maxLate = 12
	// maxBatch bounds the requests of one batch.
	maxBatch = 256
)

// queue gathers the requests for one server while others are under way.
type queue struct {
	send func([]*request) // returns when each request has its answer
	near *redis.Client    // the server, with nearTimeout; nil where a caller's goroutine must not wait
	fast atomic.Bool      // the last answer came within nearTime

	mu      sync.Mutex
	pending []*request
	active  int
	late    int
}

// add sends requests, now or with the next batch.
func (q *queue) add(requests ...*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, requests...)
	for q.active < maxBatches && len(q.pending) > 0 {
		q.active++
		go q.run(q.takeLocked())
	}
}

// begin takes a place for a request of the caller, who calls end after it. It reports whether there is one.
func (q *queue) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.active >= maxActive || len(q.pending) > 0 {
		return false
	}
	q.active++
	return true
}

// end gives the place of the caller to what is pending.
func (q *queue) end() {
	if batch := q.next(); batch != nil {
		go q.run(batch)
	}
}

// next returns the next batch for a place that has become free, or nil if none is to go out.
func (q *queue) next() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) == 0 || q.active > maxBatches {
		q.active--
		return nil
	}
	return q.takeLocked()
}

// run sends a batch, and then what has gathered meanwhile, unless it has given up its place.
func (q *queue) run(batch []*request) {
	for batch != nil {
		var back, gaveUp bool // guarded by mu
		timer := time.AfterFunc(overdue, func() {
			q.mu.Lock()
			gaveUp = !back && q.late < maxLate
			if gaveUp {
				q.late++
			}
			q.mu.Unlock()
			if gaveUp {
				q.end()
			}
		})
		began := time.Now()
		q.send(batch)
		q.fast.Store(q.near != nil && time.Since(began) < nearTime)
		timer.Stop()
		q.mu.Lock()
		back = true
		if gaveUp {
			q.late--
		}
		q.mu.Unlock()
		if gaveUp {
			return
		}
		batch = q.next()
	}
}

// takeLocked takes out as much of what is pending as one batch carries.
func (q *queue) takeLocked() []*request {
	n := min(len(q.pending), maxBatch)
	batch := q.pending[:n:n]
	q.pending = q.pending[n:]
	return batch
}
