package sqllock

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

const (
	// batchSenders is how many batches of a batcher are under way at most, each of so many calls.
	batchSenders, batchCalls = 2, 128
	// batchTime is how long a batch may take at most.
	batchTime = 5 * time.Second
)

// batcher sends calls together that come while earlier ones are under way: one statement has an
// answer for each.
type batcher struct {
	send func(ctx context.Context, calls []*batched) // sets found, answer and err of each

	ctx     context.Context // ends with the Backend
	running sync.WaitGroup  // senders

	mu      sync.Mutex
	waiting []*batched
	senders int
}

// batched is one call of a batcher: an Enter of claim, or a Leave of the claim with that ID.
type batched struct {
	ctx   context.Context // of the caller
	ref   driverutil.ClaimRef
	claim *driver.Claim // nil if it leaves
	over  chan struct{} // closed when the batch is over, and all below is set

	found  bool // the batch has an answer for it
	answer answer
	err    error // of the batch
}

// close waits for the batches that are under way. Nobody calls join any more.
func (b *batcher) close() { b.running.Wait() }

// busy reports whether a batch is under way.
func (b *batcher) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.senders > 0
}

// join sends a call with others. It returns soon after the caller's context ends; the batch may
// take effect after that.
func (b *batcher) join(c *batched) error {
	c.over = make(chan struct{})
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	if b.senders < batchSenders {
		b.senders++
		b.running.Go(b.sendAll)
	}
	b.mu.Unlock()
	select {
	case <-c.over:
		return c.err
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// sendAll sends batches until nobody waits.
func (b *batcher) sendAll() {
	for calls := b.next(); calls != nil; calls = b.next() {
		ctx, cancel := context.WithDeadline(b.ctx, lastDeadline(calls))
		b.send(ctx, calls)
		cancel()
		for _, c := range calls {
			close(c.over)
		}
	}
}

// lastDeadline is when the last caller of a batch gives up. A server that does not answer holds up
// those who come later for no longer than that.
func lastDeadline(calls []*batched) (last time.Time) {
	most := time.Now().Add(batchTime)
	for _, c := range calls {
		end, ok := c.ctx.Deadline()
		if !ok || end.After(most) {
			return most
		}
		if end.After(last) {
			last = end
		}
	}
	return last
}

// next takes the calls of the next batch, without those whose callers have gone. It ends a sender
// by returning nil.
func (b *batcher) next() (calls []*batched) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) > 0 && len(calls) < batchCalls {
		if c := b.waiting[0]; c.ctx.Err() == nil {
			calls = append(calls, c)
		}
		b.waiting = b.waiting[1:]
	}
	if calls == nil {
		b.senders--
	}
	return calls
}
