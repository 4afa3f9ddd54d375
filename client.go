package fencelock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// Client takes locks in one store. Make one per store and process, and share it:
// it renews all of its leases together, and goroutines that want the same key
// queue inside of it. All methods may be called from many goroutines at once.
//
// A Client that holds nothing has no goroutine, no timer and no connection of
// its own.
type Client struct {
	b        driver.Backend
	info     driver.Info
	reserver driver.Reserver // the backend, or nil
	o        Options
	bad      error // why no call can succeed, or nil

	clock   clock
	hooks   dispatcher
	stop    lifetime // ends when no call may wait any longer
	keep    lifetime // ends when nothing is renewed any longer
	work    lifetime // ends when Close waits for the store no longer
	unalarm func()

	warned sync.Map // texts of warnings already given

	mu         sync.Mutex
	sched      schedule
	timer      *time.Timer
	armed      int64 // when timer fires
	gates      map[string]*gate
	spareGates []*gate
	waiters    sync.Pool // of those that have gone
	ids        ids
	live       int // grants that are not over
	calls      int // acquisitions and leaves that are still running
	owed       int // claims that the store is still to be told about
	stage      stage
	changed    chan struct{} // closed when calls, owed or live go down while closing
	done       chan struct{} // closed when Close has ended
	renews     int           // batches of renewals on their way
	leaves     int           // Leaves on their way behind their callers
}

type stage uint8

const (
	open     stage = iota
	draining       // Shutdown: no new claims
	closed         // Close: nothing is held any more
	over           // Close has ended: nothing more is sent
)

// New returns a Client on b. It does no I/O. Options are copied; a bad one makes
// the first call return ErrInvalid.
//
// The Client takes over b: Close closes it. Close never closes the store's client
// that the backend was made from, which stays the user's own.
func New(b driver.Backend, o *Options) *Client {
	c := &Client{b: b, gates: map[string]*gate{}, armed: never, done: make(chan struct{})}
	c.clock.start()
	c.stop.start()
	c.keep.start()
	c.work.start()
	if b == nil {
		c.bad = invalid("New was given no backend")
		return c
	}
	c.info = b.Info()
	c.reserver, _ = b.(driver.Reserver)
	c.o, c.bad = o.settled()
	if a, ok := b.(driver.Alarm); ok && c.bad == nil {
		c.unalarm = a.Alarm(c.alarm)
	}
	return c
}

// Lock waits in the line of key and takes it alone. When ctx ends, the Context of
// the lease ends too, but the lease stays held and renewed until Release: a helper
// that locks under a ctx of its own and cancels it on return hands out a lease
// whose Context is dead. Work under lease.Context(), in a function whose error has a
// name, so that the deferred Release can say that the lock was lost:
//
//	lease, err := client.Lock(ctx, "orders/42")
//	if err != nil {
//		return err
//	}
//	defer func() { err = errors.Join(err, lease.Release(ctx)) }()
//	ctx = lease.Context()
//
// It costs one round trip if the key is free. If another goroutine of this Client
// holds the key, it may cost none (see Options.HandOff).
//
// Errors: ErrNotAcquired with a *HeldError when Wait ran out, and beside the error
// of ctx and its cause when ctx ended in line; ErrUnavailable when no answer came
// by then; ErrDeadlock, ErrKind, ErrInvalid, ErrClosed at once. Without Wait and
// without an end of ctx it waits, and rides out a store that is down, for as long
// as it takes. An error leaves nothing behind in the line; what the call was handed in
// the instant in which ctx ended is given back behind, so that a try right after it may
// still find the key taken.
func (c *Client) Lock(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, "lock", key, driver.RW, false, opts)
}

// TryLock takes key alone if that is possible now. If it is taken, the error is
// ErrNotAcquired with a *HeldError. It costs one round trip, or none if this
// Client holds the key itself. With the store down it answers ErrUnavailable when
// ctx ends, after one TTL at the latest.
func (c *Client) TryLock(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, "try lock", key, driver.RW, true, opts)
}

// RLock waits in the line of key and shares it with other readers. Readers and
// writers are served in order of arrival, so neither starves. Otherwise it is as
// Lock; the token of a reader orders nothing.
func (c *Client) RLock(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, "read lock", key, 1, false, opts)
}

// TryRLock shares key if that is possible now: no writer holds it or waits for it.
func (c *Client) TryRLock(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, "try read lock", key, 1, true, opts)
}

func (c *Client) lock(ctx context.Context, op, key string, weight int64, try bool, opts []Option) (*Lease, error) {
	r := request{op: op, key: key, capacity: driver.RW, weight: weight}
	return c.acquire(ctx, &r, try, opts)
}

// Do holds key while f runs. It locks, calls f with the lease's context and the
// lease, and releases, also when f panics; the panic goes on.
//
// It returns f's error, joined with ErrLost if the lease ended before f did. A
// release that merely could not be confirmed is told to Hooks.Released only, so
// that a caller who repeats on error does not run the work again. If the lock was
// not acquired, f has not run, and the error is that of Lock.
func (c *Client) Do(ctx context.Context, key string, f func(ctx context.Context, l *Lease) error, opts ...Option) error {
	l, err := c.Lock(ctx, key, opts...)
	if err != nil {
		return err
	}
	return l.run(ctx, &l.ctx, f)
}

// Break ends the grant of key that has the token, or the waiting claim that would
// have got it, whoever it belongs to; any token of a claim's span will do. The
// reason reaches the holder as the cause of its context: at once if it is held
// through this Client or if the backend pushes, with its next renewal otherwise.
// It costs one round trip. The holder may not have stopped working when the next
// one is granted: that is what fencing tokens are for. After ErrUnavailable, and after
// ErrClosed from a Client that was closed meanwhile, nobody knows whether it is done;
// it may be called again.
//
// If no claim has the token, nothing is changed and the error says so.
func (c *Client) Break(ctx context.Context, key string, token fence.Token, reason string) error {
	const op = "break"
	if err := c.ready(key); err != nil {
		return wrap(op, key, err)
	}
	if token <= 0 {
		return wrap(op, key, invalid("token %d; want the token of the grant to end, as Line shows it", token))
	}
	if !isText(reason) {
		return wrap(op, key, invalid("the reason is not text: it must be UTF-8 without zero bytes"))
	}
	if len(reason) > driver.MaxNote {
		return wrap(op, key, invalid("the reason has %d bytes; at most %d", len(reason), driver.MaxNote))
	}
	call := c.callFor(ctx, c.clock.now(), c.o.TTL/3)
	defer call.end()
	if err := c.b.Break(call, key, int64(token), reason); err != nil {
		if driver.Gone(err) {
			return wrap(op, key, fmt.Errorf("no claim has the token %s; nothing was changed: %w", token, err))
		}
		return wrap(op, key, c.cut(ctx, err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cl := range append(schedule(nil), c.sched...) {
		if cl.key == key && cl.covers(token) && cl.state != leaving {
			c.broken(cl, reason, true)
		}
	}
	return nil
}

// Line looks at the line of key: who holds it, who waits. It is a look, not a
// step: it may be old when it arrives. A key that nobody uses has no claims. It
// costs one round trip where the backend can look at one key.
func (c *Client) Line(ctx context.Context, key string) (driver.Line, error) {
	const op = "line"
	if err := c.ready(key); err != nil {
		return driver.Line{}, wrap(op, key, err)
	}
	call := c.callFor(ctx, c.clock.now(), c.o.TTL/3)
	defer call.end()
	if lr, ok := c.b.(driver.LineReader); ok {
		l, err := lr.Line(call, key)
		if err != nil {
			return driver.Line{}, wrap(op, key, c.cut(ctx, err))
		}
		return l, nil
	}
	for l, err := range c.b.Lines(call, key) {
		if err != nil {
			return driver.Line{}, wrap(op, key, c.cut(ctx, err))
		}
		if l.Key == key {
			return l, nil
		}
	}
	return driver.Line{Key: key}, nil
}

// Lines looks at all lines whose keys begin with prefix and that somebody holds
// or waits in, in no promised order. It stops after the first error.
func (c *Client) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		if err := c.ready("x"); err != nil {
			yield(driver.Line{}, wrap("lines", prefix, err))
			return
		}
		for l, err := range c.b.Lines(ctx, prefix) {
			if err != nil {
				yield(driver.Line{}, wrap("lines", prefix, unavailable(ctx, err)))
				return
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// cut is the error of a call that the store did not answer: Close may have cut it short.
func (c *Client) cut(ctx context.Context, err error) error {
	if c.stop.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return unavailable(ctx, err)
}

// ready reports what makes every call on key fail.
func (c *Client) ready(key string) error {
	if c.bad != nil {
		return c.bad
	}
	if err := checkKey(key); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stage != open {
		return ErrClosed
	}
	return nil
}

// callFor is the context of a driver call on behalf of ctx that begins now, limited
// to d.
func (c *Client) callFor(ctx context.Context, now int64, d time.Duration) *callCtx {
	return &callCtx{parent: ctx, life: &c.stop, clock: &c.clock, until: now + int64(d)}
}

// detached is the context of a driver call that the end of ctx does not stop: only
// the end of Close does, and the limit d.
func (c *Client) detached(ctx context.Context, now int64, d time.Duration) *callCtx {
	return &callCtx{parent: ctx, detached: true, life: &c.work, clock: &c.clock, until: now + int64(d)}
}

// Shutdown lets the Client end in peace: from now on calls answer ErrClosed, also
// those that wait in line; Shutdown waits until everything held has been released,
// or until ctx ends, and then closes. What is held is renewed meanwhile, and may be
// shared by Reentrant. If ctx ended first, the leases left are ended with ErrClosed,
// and the error is that of ctx and its cause.
func (c *Client) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	if c.stage == open {
		c.stage = draining
		c.changed = make(chan struct{})
		c.stop.end()
		c.dismiss()
	}
	for c.stage == draining && c.live > 0 {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(ended2(ctx), c.Close())
		}
		c.mu.Lock()
	}
	c.mu.Unlock()
	return c.Close()
}

// closeBudget is how long Close waits for the store.
const closeBudget = 2 * time.Second

// Close ends every lease with ErrClosed, ends all waiting, and then gives back in
// the store what was held, as far as the store answers within two seconds; the
// rest runs out there. It waits for hooks that are still to be told, for two seconds
// as well. It may be called twice; the second call waits for the first.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.stage >= closed {
		c.mu.Unlock()
		<-c.done
		return nil
	}
	if c.stage == open {
		c.changed = make(chan struct{})
		c.stop.end()
		c.dismiss()
	}
	c.stage = closed
	c.keep.end()
	now := c.clock.now()
	for _, cl := range append(schedule(nil), c.sched...) {
		if g := cl.grant; g != nil {
			c.endGrant(g, cl.lossOf(ErrClosed, g.token, ""))
			c.quit(cl, c.exit(g, now))
		} else if cl.state == leaving && !cl.exiting {
			cl.retryAt = now
			c.plan(cl, now)
		}
	}
	late := time.NewTimer(closeBudget)
	defer late.Stop()
	for waiting := true; waiting && c.calls+c.owed > 0; {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-late.C:
			waiting = false
		}
		c.mu.Lock()
	}
	c.stage = over
	c.work.end()
	if c.timer != nil {
		c.timer.Stop()
	}
	for len(c.sched) > 0 {
		c.sched.drop(c.sched[len(c.sched)-1])
	}
	c.mu.Unlock()

	if c.unalarm != nil {
		c.unalarm()
	}
	var err error
	if c.b != nil {
		err = c.b.Close()
	}
	c.hooks.drain(closeBudget)
	close(c.done)
	return err
}

// moved tells Shutdown and Close that something has ended. c.mu is held.
func (c *Client) moved() {
	if c.stage != open {
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// emit tells a hook. It may be called with or without c.mu.
func (c *Client) emit(hook func(Event), e Event) {
	if hook == nil {
		return
	}
	e.Owner = c.o.Owner
	c.hooks.send(hook, e)
}

// warnOnce tells Hooks.Warn something that would be said at every call.
func (c *Client) warnOnce(key string, err error) {
	if c.o.Hooks.Warn == nil {
		return
	}
	if _, said := c.warned.LoadOrStore(err.Error(), true); !said {
		c.emit(c.o.Hooks.Warn, Event{Key: key, Err: err})
	}
}
