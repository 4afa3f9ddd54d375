package etcdlock

import (
	"context"
	"time"
)

// A client asks its members in turn, and one that hangs keeps what it was asked
// until the context ends. Renewals made of two requests could hit it every time.
const (
	mostHedges = 3
	hedgeAfter = time.Second // or a quarter of the time that is left
)

// hedged asks again, of another member, when no answer comes: the first good one
// counts. It is for questions that may be asked twice.
func hedged[T any](ctx context.Context, b *Backend, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		what T
		err  error
	}
	answers := make(chan answer, mostHedges)
	send := func() {
		b.calls.Add(1) // during a call, which Close waits for
		go func() {
			defer b.calls.Done()
			what, err := ask(ctx)
			answers <- answer{what, err}
		}()
	}
	patience := hedgeAfter
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/4)
	}
	again := time.NewTicker(max(patience, time.Millisecond))
	defer again.Stop()
	send()
	for sent, heard := 1, 0; ; {
		select {
		case a := <-answers:
			if heard++; a.err == nil || heard == sent {
				return a.what, a.err
			}
		case <-again.C:
			if sent < mostHedges {
				sent++
				send()
			}
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
}
