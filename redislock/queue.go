package redislock

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxDirect is how many requests are under way from their callers' goroutines to one server. More gather.
	maxDirect = 4
	// maxBatches is how many requests and batches may be under way when the next batch goes out.
	maxBatches = 2
	// overdue is how long a batch is under way when it gives its place to another: its connection may be dead.
	overdue = 20 * time.Millisecond
	// maxOverdue is how many batches may be under way beside those.
	maxOverdue = 12
	// maxBatch bounds the requests of one batch.
	maxBatch = 256
)

// queue gathers the requests for one server while others are under way.
type queue struct {
	send func([]*request) // returns when each request has its answer
	near *redis.Client    // the server, with nearTimeout; nil where a caller's goroutine must not wait
	fast atomic.Bool      // the last answer came within nearTime, and the pool had room

	mu      sync.Mutex
	pending []*request
	leaving bool // a batch is about to take what is pending
	direct  int  // requests under way from their callers' goroutines
	batches int  // batches that are under way and not overdue
	overdue int  // batches that are
}

// add sends requests, now or with the next batch.
func (q *queue) add(requests ...*request) {
	q.update(func() { q.pending = append(q.pending, requests...) })
}

// begin takes a place for a request of the caller, who calls end after it. It reports whether there is one.
// Requests do not go past those that gather: they would be too few for a batch, and a batch costs the server less.
func (q *queue) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.direct >= maxDirect || q.batches > 0 || len(q.pending) > 0 {
		return false
	}
	q.direct++
	return true
}

func (q *queue) end() { q.update(func() { q.direct-- }) }

// update changes the queue, and begins a batch if something is pending and there is a place for it then.
func (q *queue) update(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
	if len(q.pending) > 0 && !q.leaving &&
		q.direct+q.batches < maxBatches && q.batches+q.overdue < maxBatches+maxOverdue {
		q.leaving = true
		q.batches++
		go q.run()
	}
}

// run sends a batch.
func (q *queue) run() {
	runtime.Gosched() // goroutines that the last batch has woken come along: a fifth more locks in a call with 8 keys
	var batch []*request
	q.update(func() {
		n := min(len(q.pending), maxBatch)
		batch, q.pending, q.leaving = q.pending[:n:n], q.pending[n:], false
	})
	late := time.AfterFunc(overdue, func() {
		q.update(func() {
			q.batches--
			q.overdue++
		})
	})
	began := time.Now()
	q.send(batch)
	q.fast.Store(q.near != nil && time.Since(began) < nearTime && !poolIsFull(q.near))
	inTime := late.Stop()
	q.update(func() {
		if inTime {
			q.batches--
		} else {
			q.overdue-- // perhaps just before it is counted
		}
	})
}
