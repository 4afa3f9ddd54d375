package etcdlock

import (
	"context"
	"sync"
	"time"
)

// A client sends its requests to its members in turn, and a member that hangs keeps a request
// until its context ends. So a renewal sends each request again, to another member.
const (
	maxHedges  = 3
	hedgeAfter = time.Second // or a quarter of the time that is left
)

// hedged sends a request up to maxHedges times and takes the first answer without an
// error. It is for requests that may be applied twice.
func hedged[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		answer T
		err    error
	}
	results := make(chan result, maxHedges)
	send := func() {
		group.Go(func() {
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

// parallel calls f with 0 to n-1, on maxParallel goroutines at a time, and waits for all.
func parallel(n int, f func(i int)) {
	var group sync.WaitGroup
	limit := make(chan struct{}, maxParallel)
	for i := range n {
		limit <- struct{}{}
		group.Go(func() {
			defer func() { <-limit }()
			f(i)
		})
	}
	group.Wait()
}
