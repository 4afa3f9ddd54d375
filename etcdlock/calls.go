package etcdlock

import (
	"context"
	"sync"
	"time"
)

// callGroup counts the calls under way and their goroutines, so that Close can wait
// for them.
type callGroup struct {
	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup
}

// start counts a call in, and reports false after refuse.
func (g *callGroup) start() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.group.Add(1)
	return true
}

func (g *callGroup) finish() { g.group.Done() }

// background runs f in a goroutine, which may outlive the call that starts it.
func (g *callGroup) background(f func()) { g.group.Go(f) }

func (g *callGroup) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *callGroup) wait() { g.group.Wait() }

// A client sends its requests to its members in turn, and a member that hangs keeps a
// request until its context ends. A renewal of two requests could meet that member
// every time. So a renewal sends each request again, to another member.
const (
	maxHedges  = 3
	hedgeAfter = time.Second // or a quarter of the time that is left
)

// hedged sends a request up to maxHedges times and takes the first answer without an
// error. It is for requests that may be applied twice.
func hedged[T any](ctx context.Context, b *Backend, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		answer T
		err    error
	}
	results := make(chan result, maxHedges)
	send := func() {
		b.calls.background(func() {
			answer, err := request(ctx)
			results <- result{answer, err}
		})
	}
	after := hedgeAfter
	if end, ok := ctx.Deadline(); ok {
		after = min(after, time.Until(end)/4)
	}
	again := time.NewTicker(max(after, time.Millisecond))
	defer again.Stop()
	send()
	for sent, received := 1, 0; ; {
		select {
		case r := <-results:
			if received++; r.err == nil || received == sent {
				return r.answer, r.err
			}
		case <-again.C:
			if sent < maxHedges {
				sent++
				send()
			}
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
}

// maxParallel bounds the requests of one call that are under way at the same time.
const maxParallel = 16

// parallel runs functions in goroutines, maxParallel at a time.
type parallel struct {
	group sync.WaitGroup
	limit chan struct{}
}

func newParallel() *parallel { return &parallel{limit: make(chan struct{}, maxParallel)} }

func (p *parallel) run(f func()) {
	p.group.Go(func() {
		p.limit <- struct{}{}
		defer func() { <-p.limit }()
		f()
	})
}

func (p *parallel) wait() { p.group.Wait() }
