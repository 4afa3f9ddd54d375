// Package faulty wraps a backend with faults on order, to see what a program
// does when its store is slow, cut off, or answers to nobody.
//
//	b := faulty.New(memlock.New(), seed, faulty.Options{Delay: time.Second, Lose: 0.1})
//	client, err := fencelock.New(b, nil)
//
// A call through a Backend is a message: it travels, takes effect, and its answer
// travels back. Every fault is something that a network or a server does to one
// of the three. An exact fault is ordered for the next call of a method with
// Next; others are drawn.
//
// What is drawn follows from the seed, the method, the key, and how many calls of
// that method on that key came before: goroutines that run in another order do
// not change it. Inside a testing/synctest bubble delays are virtual and a run can
// be repeated from its seed, as far as the program itself is deterministic.
package faulty

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// ErrInjected is matched by every error that a Backend makes up. It says nothing
// of whether the call took effect.
var ErrInjected = errors.New("injected fault")

// Method names a method of driver.Backend.
type Method string

// The methods that faults can be ordered for.
const (
	Enter   Method = "Enter"
	Await   Method = "Await"
	Renew   Method = "Renew"
	Leave   Method = "Leave"
	Reserve Method = "Reserve"
	Break   Method = "Break"
	Lines   Method = "Lines" // Line too
)

// Options says which faults are drawn. The zero value draws none.
type Options struct {
	// Delay is the longest that a message travels, drawn anew each way.
	Delay time.Duration
	// Fail, Lose and Late are how often, from 0 to 1, a call meets that fault; see
	// Fault. The sum must not exceed 1.
	Fail, Lose, Late float64
	// DropPushes makes Await return only by its timer, as if every pushed grant
	// was lost.
	DropPushes bool
}

// Backend is a driver.Backend that meets with faults.
type Backend struct {
	inner driver.Backend
	seed  uint64
	o     Options
	late  context.Context // ends with Close, for calls that nobody waits for
	end   context.CancelFunc
	group sync.WaitGroup

	mu      sync.Mutex
	resumed chan struct{}  // nil unless paused; closed by Resume
	calls   map[string]int // of each method and key
	ordered map[Method][]Fault
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Reserver = (*Backend)(nil)
	_ driver.Alarm    = (*Backend)(nil)
)

// New wraps b.
func New(b driver.Backend, seed uint64, o Options) *Backend {
	f := &Backend{inner: b, seed: seed, o: o, calls: map[string]int{}, ordered: map[Method][]Fault{}}
	f.late, f.end = context.WithCancel(context.Background())
	return f
}

// Next orders f for the next call of m that has no fault ordered yet. Faults that
// were ordered are met before any is drawn, in the order of the orders.
func (b *Backend) Next(m Method, f Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ordered[m] = append(b.ordered[m], f)
}

// Set replaces the faults that are drawn from now on.
func (b *Backend) Set(o Options) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.o = o
}

// Pause stops the server: calls that have not taken effect wait for Resume, as
// requests do in the socket of a process that was stopped.
func (b *Backend) Pause() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.resumed == nil {
		b.resumed = make(chan struct{})
	}
}

// Resume ends a Pause.
func (b *Backend) Resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.resumed != nil {
		close(b.resumed)
		b.resumed = nil
	}
}

// paused is what calls wait for after Pause, or nil.
func (b *Backend) paused() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.resumed
}

// Enter meets faults and enters.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return through(b, ctx, Enter, c.Key, func(ctx context.Context) (driver.Ticket, error) {
		return b.inner.Enter(ctx, c)
	})
}

// Await meets faults and waits. Where pushes are dropped it returns only when its
// second is over, or the lease of the first in line.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	return through(b, ctx, Await, t.Key, func(ctx context.Context) (driver.Ticket, error) {
		b.mu.Lock()
		drop := b.o.DropPushes
		b.mu.Unlock()
		if drop {
			return b.awaitByTimer(ctx, t)
		}
		return b.inner.Await(ctx, t)
	})
}

// Renew meets faults and renews. A fault is met by all tickets of the call.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs, err := through(b, ctx, Renew, ts[0].Key, func(ctx context.Context) ([]error, error) {
		return b.inner.Renew(ctx, ts), nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(ts))
	}
	return errs
}

// Leave meets faults and leaves.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	_, err := through(b, ctx, Leave, t.Key, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.inner.Leave(ctx, t, e)
	})
	return err
}

// Reserve meets faults and reserves. If the backend cannot, it does nothing, as it may.
func (b *Backend) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	r, ok := b.inner.(driver.Reserver)
	if !ok {
		return false, nil
	}
	return through(b, ctx, Reserve, t.Key, func(ctx context.Context) (bool, error) {
		return r.Reserve(ctx, t, span)
	})
}

// Break meets faults and breaks.
func (b *Backend) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	_, err := through(b, ctx, Break, key, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.inner.Break(ctx, key, token, how)
	})
	return err
}

// Lines meets faults before the first line is yielded, and then passes lines on.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		lines, err := through(b, ctx, Lines, prefix, func(ctx context.Context) (iter.Seq2[driver.Line, error], error) {
			return b.inner.Lines(ctx, prefix), nil
		})
		if err != nil {
			yield(driver.Line{}, err)
			return
		}
		lines(yield)
	}
}

// Line meets the faults of Lines.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	return through(b, ctx, Lines, key, func(ctx context.Context) (driver.Line, error) {
		return b.inner.Line(ctx, key)
	})
}

// Alarm passes on what the backend says. A backend without alarms says nothing, as it may.
func (b *Backend) Alarm(f func(id string, gone driver.GoneError)) (stop func()) {
	a, ok := b.inner.(driver.Alarm)
	if !ok {
		return func() {}
	}
	return a.Alarm(f)
}

// Info is that of the backend.
func (b *Backend) Info() driver.Info { return b.inner.Info() }

// Open takes over the backend behind it.
func (b *Backend) Open() error { return b.inner.Open() }

// Close recalls the calls that nobody waits for any more, and closes the backend.
// It does not end a Pause: a call under way waits for Resume or for its context.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.end() // leaveBehind adds nothing from here on
	b.mu.Unlock()
	b.group.Wait()
	return b.inner.Close()
}
