package faulty

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Fault is what happens to one call. The zero value is none.
type Fault struct {
	// Before and After are how long the request and its answer travel.
	Before, After time.Duration
	// Fail answers an error instead of taking effect, and Lose answers one after it. With a
	// long After nothing is answered until the caller's context ends.
	Fail, Lose bool
	// Late lets a request that is still under way when the caller's context ends
	// take effect later, with nobody to hear the answer. Without it such a request
	// is recalled.
	Late bool
	// Err is the error to answer; ErrInjected if nil.
	Err error
}

// fault is what the next call of m on key meets.
func (b *Backend) fault(m Method, key string) Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.ordered[m]; len(q) > 0 {
		b.ordered[m] = q[1:]
		return q[0]
	}
	call := string(m) + "\x00" + key
	h := fnv.New64a() // the same in every run
	fmt.Fprintf(h, "%s\x00%d", call, b.calls[call])
	b.calls[call]++
	rng := rand.New(rand.NewPCG(b.seed, h.Sum64()))
	var f Fault
	if b.o.Delay > 0 {
		f.Before = time.Duration(rng.Int64N(int64(b.o.Delay)))
		f.After = time.Duration(rng.Int64N(int64(b.o.Delay)))
	}
	switch p := rng.Float64(); {
	case p < b.o.Fail:
		f.Fail = true
	case p < b.o.Fail+b.o.Lose:
		f.Lose = true
	case p < b.o.Fail+b.o.Lose+b.o.Late:
		f.Late = true
	}
	return f
}

// through sends one call through its fault.
func through[A any](
	b *Backend, ctx context.Context, m Method, key string, call func(context.Context) (A, error),
) (A, error) {
	var none A
	if b.late.Err() != nil {
		return none, driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	f := b.fault(m, key)
	sent := time.Now()
	if err := b.arrive(ctx, f.Before); err != nil {
		if f.Late {
			b.leaveBehind(f.Before-time.Since(sent), func(ctx context.Context) { _, _ = call(ctx) })
		}
		return none, err
	}
	a, err := none, cmp.Or(f.Err, fmt.Errorf("%s: %w", m, ErrInjected))
	if !f.Fail {
		answer, answered := call(ctx)
		if !f.Lose {
			a, err = answer, answered
		}
	}
	if late := sleep(ctx, f.After); late != nil {
		return none, late
	}
	return a, err
}

// arrive lets a request travel for d, and past a Pause.
func (b *Backend) arrive(ctx context.Context, d time.Duration) error {
	if err := sleep(ctx, d); err != nil {
		return err
	}
	for resumed := b.paused(); resumed != nil; resumed = b.paused() {
		select {
		case <-resumed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// leaveBehind lets a request take effect later, with nobody waiting for it.
func (b *Backend) leaveBehind(d time.Duration, call func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late.Err() != nil {
		return // Close may be waiting for the group
	}
	b.group.Go(func() {
		if b.arrive(b.late, d) == nil {
			call(b.late)
		}
	})
}

// sleep waits for d. Whether it ends in time is decided by the deadline of ctx
// where there is one, not by which of two timers fires first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	if end, ok := ctx.Deadline(); ok && !time.Now().Add(d).Before(end) {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// awaitByTimer waits for a second and then looks once.
func (b *Backend) awaitByTimer(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	d := time.Second
	if t.Head != nil && t.Head.Left > 0 {
		d = min(d, t.Head.Left)
	}
	if t.Granted {
		d = 0
	}
	if err := sleep(ctx, d); err != nil {
		return driver.Ticket{}, err
	}
	// A look that is cut short leaves no time for a push.
	look, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	now, err := b.inner.Await(look, t)
	if err != nil && look.Err() != nil && ctx.Err() == nil {
		t.Head = nil // its lease is old news: the next look is a second away
		return t, nil
	}
	return now, err
}
