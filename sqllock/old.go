package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// oldBackend is a Backend of a dialect whose lines are not swapped yet. Each of its methods is one short
// transaction.
type oldBackend struct {
	info    driver.Info
	dialect dialect
	store   *steps
	bad     error // why no call can succeed
	owner   driverutil.Ownership

	ctx   context.Context // ends at Close
	stop  context.CancelFunc
	mu    sync.Mutex
	ended bool
	calls sync.WaitGroup // calls under way, and the watch
	open  atomic.Bool    // the store is ready
	first sync.Mutex     // held by the call that makes it ready

	enters  atomic.Uint32 // paces the sweep
	waiters waiterRegistry
}

var (
	_ driver.Backend  = (*oldBackend)(nil)
	_ driver.Alarm    = (*oldBackend)(nil)
	_ driver.Detacher = (*oldBackend)(nil)
)

func newOld(c config, k dialect, bad error) *oldBackend {
	b := &oldBackend{bad: bad, dialect: k, info: k.info()}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.waiters.wake = make(chan struct{}, 1)
	b.waiters.lines = make(map[string]*waitedLine)
	b.waiters.told = make(map[driverutil.ClaimRef]bool)
	c.ctx, c.node = b.ctx, rand.Int64()
	b.info.Namespace = c.names.prefix
	if bad == nil {
		b.store = k.open(c)
	}
	b.enters.Store(uint32(c.node))
	return b
}

// Reserve lengthens no span.
func (b *oldBackend) Reserve(context.Context, driver.Ticket, int64) (bool, error) {
	return false, b.bad
}

// Open takes the backend over for one Client, and says which of the Options is bad.
func (b *oldBackend) Open() error { return b.owner.Take(b.bad) }

// Info says what the dialect promises.
func (b *oldBackend) Info() driver.Info { return b.info }

// Close ends the Backend's goroutines and prepared statements, and makes calls
// that are under way return ErrClosed. It leaves the database open and the claims
// where they are. It waits for a statement that SQLite is in the middle of, at
// most for the busy timeout that the DSN asks for.
func (b *oldBackend) Close() error {
	b.mu.Lock()
	was := b.ended
	b.ended = true
	b.mu.Unlock()
	b.stop()
	b.calls.Wait()
	if !was && b.store != nil {
		b.store.close()
	}
	return nil
}

// call runs f, once the store is ready, and delivers its effects. It returns soon
// after ctx ends. Where a statement may wait inside a driver that does not hear its
// context, f runs on a goroutine of its own and goes on in the background. Otherwise f runs on
// the caller's, because an SQL engine written in Go wants a deep stack: growing a new one for
// each call costs a third of the call.
func call[T any](ctx context.Context, b *oldBackend, f func(ctx context.Context) (T, effects, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if b.bad != nil {
		return none, b.bad
	}
	if !b.begin() {
		return none, driver.ErrClosed
	}
	if b.open.Load() && !b.store.ignoresContext() {
		return run(ctx, b, f)
	}
	type outcome struct {
		t   T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		t, err := run(ctx, b, f)
		done <- outcome{t, err}
	}()
	select {
	case o := <-done:
		return o.t, o.err
	case <-ctx.Done():
	case <-b.ctx.Done():
		return none, driver.ErrClosed
	}
	select {
	case o := <-done: // most calls end with their context, and say more
		return o.t, o.err
	case <-time.After(endsWithin):
		return none, b.cutShort(ctx.Err(), nil)
	}
}

// endsWithin is how long a call that ends with its context may take to say why it had no success.
const endsWithin = 20 * time.Millisecond

// run is call up to the end of f. Close ends the context of f.
func run[T any](caller context.Context, b *oldBackend, f func(ctx context.Context) (T, effects, error)) (T, error) {
	defer b.calls.Done()
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	var none T
	if err := b.ready(ctx); err != nil {
		return none, b.explain(caller, err)
	}
	t, e, err := f(ctx)
	b.deliver(e)
	if err != nil {
		return none, b.explain(caller, err)
	}
	return t, nil
}

// begin counts a call in, unless the Backend was closed.
func (b *oldBackend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.calls.Add(1)
	return true
}

// ready makes the store ready before the first step. Until then calls are on goroutines of
// their own, so nobody waits for first beyond the end of a context.
func (b *oldBackend) ready(ctx context.Context) error {
	if b.open.Load() {
		return nil
	}
	b.first.Lock()
	defer b.first.Unlock()
	if b.open.Load() {
		return nil
	}
	if err := b.store.ready(ctx); err != nil {
		return err
	}
	b.open.Store(true)
	b.kick() // an Alarm may have been waiting for this
	return nil
}

// explain lets a call that was cut short say so, whatever the driver made of it.
func (b *oldBackend) explain(ctx context.Context, err error) error {
	if err == nil || isAnswer(err) {
		return err
	}
	if ended := driverutil.Ended(ctx); ended != nil {
		return b.cutShort(ended, err)
	}
	if b.ctx.Err() != nil {
		return driver.ErrClosed
	}
	if p := (*poolError)(nil); errors.As(err, &p) {
		return errors.New(p.Error())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		// Not the caller's: it must not take this for the end of its own context.
		return fmt.Errorf("%s: the database was busy for %v", b.info.Name, readFor)
	}
	return err
}

// cutShort is ended, the end of the caller's context. If the program has all connections of the
// pool it says so, as err may do already.
func (b *oldBackend) cutShort(ended, err error) error {
	if errors.As(err, new(*poolError)) {
		return err
	}
	if s, ok := b.store.store.(pooledStore); ok {
		return s.starved(ended)
	}
	return ended
}

// Enter joins the line of c.Key, or starts again the lease of the claim with c.ID
// that is there already. A free lock takes one statement, any other one short
// transaction.
func (b *oldBackend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if b.bad != nil {
		return driver.Ticket{}, b.bad
	}
	if err := c.Validate(b.info); err != nil {
		return driver.Ticket{}, err
	}
	c.TTL, c.WaitTTL = c.Lease(false), 0
	return call(ctx, b, func(ctx context.Context) (driver.Ticket, effects, error) {
		t, e, err := b.store.enter(ctx, &c)
		if err == nil {
			b.sweepSometimes(ctx)
		}
		return t, e, err
	})
}

// sweepEach says that one Enter in so many looks for idle lines and forgets sweepLines of
// them at most: two for each that an Enter can have made, so the sweep keeps up.
const sweepEach, sweepLines = 256, 512

// sweepSometimes forgets some idle lines. That it fails is of no matter: the next one does it.
func (b *oldBackend) sweepSometimes(ctx context.Context) {
	// The first phase is at random, so that processes that enter once and end, as commands do,
	// sweep as often as others.
	if b.enters.Add(1)%sweepEach != 0 {
		return
	}
	if e, err := b.store.sweep(ctx); err == nil {
		b.deliver(e)
	}
}

// read is call for what has no effects.
func read[T any](ctx context.Context, b *oldBackend, f func(ctx context.Context) (T, error)) (T, error) {
	return call(ctx, b, func(ctx context.Context) (T, effects, error) {
		t, err := f(ctx)
		return t, effects{}, err
	})
}

// step is call for steps that answer an error alone.
func (b *oldBackend) step(ctx context.Context, f func(ctx context.Context) (effects, error)) error {
	_, err := call(ctx, b, func(ctx context.Context) (struct{}, effects, error) {
		e, err := f(ctx)
		return struct{}{}, e, err
	})
	return err
}

// Renew starts the leases of ts again, in one transaction or in one for each hundred.
func (b *oldBackend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	// A call that is cut short goes on behind, when ts is the caller's again.
	mine := slices.Clone(ts)
	errs, err := read(ctx, b, func(ctx context.Context) ([]error, error) { return b.store.renew(ctx, mine), nil })
	if err != nil {
		return slices.Repeat([]error{err}, len(ts))
	}
	for i, err := range errs {
		errs[i] = b.explain(ctx, err)
	}
	return errs
}

// Leave takes the claim with t.ID out of the line, and wakes everyone that this
// makes granted. It takes one statement if nobody else is in line, and one short
// transaction otherwise. It needs room on the disk, as every write does.
func (b *oldBackend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	return b.step(ctx, func(ctx context.Context) (effects, error) { return b.store.leave(ctx, &t, e) })
}

// Break ends the claim of key whose span holds token, in one short transaction.
func (b *oldBackend) Break(ctx context.Context, key string, token int64, reason string, linger time.Duration) error {
	return b.step(ctx, func(ctx context.Context) (effects, error) {
		micros := lingerMicros(linger)
		if linger < 0 {
			micros = -1
		}
		a, err := b.store.step(ctx, "break a claim of", key, "break",
			[]byte(key), token, b.store.text(reason), micros, b.store.node)
		return a.ended(err)
	})
}

// Detach starts the lease of t again. A claim in a database belongs to no process.
func (b *oldBackend) Detach(ctx context.Context, t driver.Ticket) error {
	return b.Renew(ctx, []driver.Ticket{t})[0]
}

// Adopt gives the claim of t to by, in one short transaction.
func (b *oldBackend) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
	if b.bad != nil {
		return driver.Ticket{}, b.bad
	}
	if err := by.Validate(b.info); err != nil {
		return driver.Ticket{}, err
	}
	return call(ctx, b, func(ctx context.Context) (driver.Ticket, effects, error) {
		return b.store.adopt(ctx, &t, &by)
	})
}
