package fencelock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/agenda"
	"github.com/fencelock/fencelock/internal/clock"
)

// Client takes locks in one store. Make one per store and process, and share it:
// it renews all of its leases together, and goroutines that want the same key
// queue inside of it. All methods may be called from many goroutines at once.
//
// A Client that holds nothing has no goroutine, no timer and no connection of
// its own. Its backend may keep some from the first grant until Close, such as a
// subscription to Redis: a program that makes a Client for each request runs out
// of connections unless it closes each.
type Client struct {
	backend  driver.Backend
	info     storeInfo
	reserver driver.Reserver // the backend, or nil
	options  Options

	clock    clock.Clock
	events   dispatcher
	queues   localQueues           // goroutines that wait for a key
	schedule agenda.Agenda[*claim] // claims that are renewed, or that have a Leave due
	life     lifecycle             // what Shutdown and Close wait for
	renewals atomic.Int32          // calls of Backend.Renew under way
	leaves   atomic.Int32          // background Leaves under way
	waits    atomic.Uint64         // those reported by EventWaiting

	named        sync.Map  // ClaimIDs of the calls that are under way
	acquisitions sync.Pool // of *acquisition
	stopAlarms   func()
}

// New returns a Client on b. It does no I/O. Options are copied.
//
// The Client takes over b: Close closes it. Close never closes the store's client
// that the backend was made from: that client stays the user's own. A program that ends
// and holds nothing need not close it.
//
// The error is ErrInvalid with what is wrong: a bad value in o or in the options of the
// backend, or a backend that another Client owns already. Only memlock.Store may have
// several Clients.
func New(b driver.Backend, o *Options) (*Client, error) {
	if b == nil {
		return nil, wrap("new", "", invalid("there is no backend"))
	}
	options, err := o.withDefaults()
	if err != nil {
		return nil, wrap("new", "", err)
	}
	if err := b.Open(); err != nil {
		return nil, wrap("new", "", fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	c := &Client{backend: b, info: storeInfo{b.Info()}, options: options}
	c.clock.Start()
	c.life.start(&c.clock)
	c.queues.c, c.queues.byKey = c, map[string]*localQueue{}
	c.schedule.Start(&c.clock, c.processDue)
	c.reserver, _ = b.(driver.Reserver)
	c.events.On, c.events.owner = c.options.OnEvent, c.options.Owner
	if a, ok := b.(driver.Alarm); ok {
		c.stopAlarms = a.Alarm(c.claimBroken)
	}
	return c, nil
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
// Errors: ErrNotAcquired with a *HeldError when Wait ran out, and together with the error
// of ctx and its cause when ctx ended in line; ErrUnavailable if the store had not
// responded by then; ErrDeadlock, ErrKind, ErrInvalid, ErrClosed at once. Without Wait and
// without an end of ctx it waits forever, also while the store is down. An error leaves no
// claim in the line. A lock granted as ctx ends is released in the background, so a try
// right after it may still find the key taken.
func (c *Client) Lock(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, "lock", key, driver.RW, false, opts)
}

// TryLock takes key alone if that is possible now. If it is taken, the error is
// ErrNotAcquired with a *HeldError. It costs one round trip, or none if this
// Client holds the key itself. If the store does not respond within two seconds, or within
// one TTL if that is shorter, the error is ErrUnavailable.
func (c *Client) TryLock(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, "try lock", key, driver.RW, true, opts)
}

// RLock waits in the line of key and shares it with other readers. Readers and
// writers are served in order of arrival, so neither starves. Otherwise it is as
// Lock; the token of a reader orders nothing. With Wait(0) it shares key only if that is
// possible now: no writer holds it or waits for it.
func (c *Client) RLock(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, "read lock", key, 1, false, opts)
}

func (c *Client) lock(ctx context.Context, op, key string, weight int64, try bool, opts []Option) (*Lease, error) {
	r := request{op: op, key: key, takes: lockTakes, capacity: driver.RW, weight: weight, try: try}
	return c.acquire(ctx, r, opts)
}

// Do holds key alone while f runs. For readers, permits or a try, take the lease and call
// Lease.Do. It locks, calls f with the lease's context and the lease, and releases, also if
// f panics; the panic continues.
//
// It returns f's error, joined with ErrLost if the lease ended before f did. A
// release that merely could not be confirmed is reported as an EventReleased only, so
// that a caller who repeats on error does not run the work again. If the lock was
// not acquired, f has not run, and the error is that of Lock.
func (c *Client) Do(
	ctx context.Context, key string, f func(ctx context.Context, l *Lease) error, opts ...Option,
) error {
	l, err := c.Lock(ctx, key, opts...)
	if err != nil {
		return err
	}
	return l.run(ctx, &l.ctx, f)
}

// Acquire waits in line for n of the size permits of the semaphore key, and holds them as one
// lease: at most size permits are held at once, over all machines; 1 ≤ n ≤ size < 1048576. The
// first claim of a key sets its size: as long as a permit is held or waited for, another size is
// ErrKind, and the error names both.
//
// Claims are served in order of arrival: a large one is not overtaken by small ones. The permits
// of a holder that dies are free when its lease ends. Otherwise it is as Lock; its token orders
// nothing. With Wait(0) it takes the permits only if they are free now and no claim waits.
func (c *Client) Acquire(ctx context.Context, key string, n, size int64, opts ...Option) (*Lease, error) {
	r := request{op: "acquire", key: key, takes: lockTakes, capacity: size, weight: n, permits: true}
	return c.acquire(ctx, r, opts)
}
