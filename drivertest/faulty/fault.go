package faulty

import (
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
	// Gate holds the request back until it is closed, after Before.
	Gate <-chan struct{}
	// Fail answers an error instead of taking effect.
	Fail bool
	// Lose takes effect and answers an error.
	Lose bool
	// Late lets a request that is still under way when the caller's context ends
	// take effect later, with nobody to hear the answer. Without it such a request
	// is recalled.
	Late bool
	// Silent makes Fail and Lose answer nothing at all, until the caller's context
	// ends.
	Silent bool
	// Err is the error to answer; ErrInjected if nil.
	Err error
}

// injected reports whether f is more than a delay.
func (f Fault) injected() bool { return f.Fail || f.Lose || f.Late }

// err is the error to answer.
func (f Fault) err(m Method) error {
	if f.Err != nil {
		return f.Err
	}
	return fmt.Errorf("%s: %w", m, ErrInjected)
}

// draw names what a fault is drawn for, but for how often it was before.
type draw struct {
	method Method
	key    string
}

// fault is what the next call of m on key meets.
func (b *Backend) fault(m Method, key string) Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[m]++
	f, ok := b.order(m)
	if !ok {
		f = b.drawn(draw{m, key})
	}
	if f.injected() {
		b.faults[m]++
	}
	return f
}

// order takes the next fault ordered for m, if there is one.
func (b *Backend) order(m Method) (Fault, bool) {
	q := b.scripted[m]
	if len(q) == 0 {
		return Fault{}, false
	}
	b.scripted[m] = q[1:]
	return q[0], true
}

// drawn draws a fault.
func (b *Backend) drawn(d draw) Fault {
	n := b.draws[d]
	b.draws[d]++
	rng := rand.New(rand.NewPCG(b.seed, mix(fmt.Sprintf("%s\x00%s\x00%d", d.method, d.key, n))))
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
	if err := b.usable(ctx); err != nil {
		return none, err
	}
	f := b.fault(m, key)
	sent := time.Now()
	if err := b.arrive(ctx, f, f.Before); err != nil {
		if f.Late {
			b.leaveBehind(f, f.Before-time.Since(sent), func(ctx context.Context) { _, _ = call(ctx) })
		}
		return none, err
	}
	if f.Fail {
		return none, b.fail(ctx, m, f)
	}
	a, err := call(ctx)
	if f.Lose {
		return none, b.fail(ctx, m, f)
	}
	if err := sleep(ctx, f.After); err != nil {
		return none, err
	}
	return a, err
}

// usable refuses what no backend takes.
func (b *Backend) usable(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// arrive lets a request travel, through its gate and past a Pause.
func (b *Backend) arrive(ctx context.Context, f Fault, d time.Duration) error {
	if err := sleep(ctx, d); err != nil {
		return err
	}
	if err := pass(ctx, f.Gate); err != nil {
		return err
	}
	for {
		b.mu.Lock()
		resumed := b.resumed
		b.mu.Unlock()
		if resumed == nil {
			return ctx.Err()
		}
		if err := pass(ctx, resumed); err != nil {
			return err
		}
	}
}

// leaveBehind lets a request take effect later, with nobody waiting for it.
func (b *Backend) leaveBehind(f Fault, d time.Duration, call func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.group.Go(func() {
		if b.arrive(b.late, f, d) == nil {
			call(b.late)
		}
	})
}

// fail answers the error of a fault, or nothing until ctx ends.
func (b *Backend) fail(ctx context.Context, m Method, f Fault) error {
	if f.Silent {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := sleep(ctx, f.After); err != nil {
		return err
	}
	return f.err(m)
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// pass waits for gate, if there is one.
func pass(ctx context.Context, gate <-chan struct{}) error {
	if gate == nil {
		return ctx.Err()
	}
	select {
	case <-gate:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// fallback is how long an Await waits that hears nothing.
const fallback = time.Second

// awaitByTimer waits for the fallback and then looks once.
func (b *Backend) awaitByTimer(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	d := fallback
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

// mix makes a number of text, the same in every run (FNV-1a).
func mix(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}
