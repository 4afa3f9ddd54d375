package swaplock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/line"
)

// Backend keeps locks in a Store: it is a driver.Backend, with all that package driver promises. Its methods may be
// called from many goroutines at once. Their errors are those of the driver: driver.ErrRefused says that nothing
// happened, driver.Gone that the claim is not in line, driver.ErrClosed that Close was called.
//
// A step is a Read and a Swap, and both again after each swap of others that came between. Steps of one key that
// come while another is under way share the next one.
type Backend struct {
	driverutil.Ownership
	store     Store
	arriver   Arriver   // the store, if it is one
	messenger Messenger // the store, if it is one
	info      driver.Info
	grace     time.Duration   // see Traits
	node      string          // see Traits
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	running   sync.WaitGroup // the goroutines that it has started
	claims    claims

	mu        sync.Mutex
	queues    map[string][]*job    // the steps that wait, of keys of which one is under way
	enters    map[string]int       // Enters under way
	lateUntil map[string]time.Time // keys whose swaps come too late, for how long that is believed
	watching  bool
	forgetAt  time.Time // when what is old is forgotten next
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Reserver = (*Backend)(nil)
	_ driver.Detacher = (*Backend)(nil)
	_ driver.Alarm    = (*Backend)(nil)
)

// New returns a Backend that keeps its lines in store. It sends no request.
func New(store Store) *Backend {
	traits := store.Traits()
	b := &Backend{store: store, grace: traits.Grace, node: traits.Node, info: driver.Info{
		Name: traits.Name, Namespace: traits.Namespace, Fair: true, Linger: true, After: true,
		MinTTL: max(traits.MinTTL, line.MinTTL), MaxTTL: line.MaxTTL,
	}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.arriver, _ = store.(Arriver)
	b.claims = newClaims()
	b.claims.clock.Start()
	b.messenger, _ = store.(Messenger)
	b.queues, b.lateUntil = make(map[string][]*job), make(map[string]time.Time)
	b.enters = make(map[string]int)
	b.forgetAt = time.Now().Add(rand.N(line.ForgetEvery)) // also a process that lives for a second may have its turn
	return b
}

// Open takes the Backend over for one Client. It sends no request, and fails if another Client has it.
func (b *Backend) Open() error { return b.Take(nil) }

// Info says that a Backend keeps every law of a line.
func (b *Backend) Info() driver.Info { return b.info }

// Close ends what the Backend has started. The claims stay.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.cancel() // nothing starts from now on
	b.mu.Unlock()
	b.running.Wait()
	return nil
}

// Leave takes the claim of t out of its line and wakes everyone that this makes granted. It costs one request if the
// line was seen last by this process and nobody has written it since, or if the claim waits as an arrival; else a step.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	missed := false // the claim was gone before the message came
	leave := func(r *reading, s *line.Step) error {
		if err := r.missing(t.ID); err != nil {
			return err
		}
		found, asked := r.obeyed[t.ID]
		missed = missed || asked && !found
		err := r.Leave(s, &t, e)
		if r.appended && !missed && (err == error(driver.GoneError{}) || r.Tombstones[t.ID].Left) {
			return nil // it has left by the message, maybe under notice
		}
		return err
	}
	ref := driverutil.Ref(t.Key, t.ID)
	b.claims.leaving(ref, true)
	err := b.withdraw(ctx, &t, e)
	if errors.Is(err, errPart) {
		j := &job{ctx: ctx, f: leave, id: t.ID}
		switch e {
		case driver.Exit{}:
			j.recalls, j.asks = leaves, func() []byte {
				return note(t.ID, message{Leave: text(t.ID), Token: t.Token})
			}
		case driver.Exit{Mark: e.Mark}:
			j.recalls = leaves
		}
		// A holder alone seldom has a rival: only its own swap is sure to wake the next one soon.
		if driverutil.Exclusive(&t.Claim) {
			j.after = patience
		}
		err = b.do(t.Key, j)
	}
	if err == nil || driver.Gone(err) {
		b.claims.leave(ref)
	}
	b.claims.leaving(ref, false)
	return err
}

// withdraw takes the claim of t out of the arrivals, without a read. It returns errPart if it may not be there, or may
// be granted.
func (b *Backend) withdraw(ctx context.Context, t *driver.Ticket, e driver.Exit) error {
	a := b.claims.arrived(driverutil.Ref(t.Key, t.ID))
	if a == nil || e.Tombstone || e.Mark != "" || e.Linger != 0 {
		return errPart
	}
	if err := b.ended(ctx); err != nil {
		return err
	}
	done, err := b.arriver.Withdraw(ctx, t.Key, a)
	if err == nil && !done {
		return errPart
	}
	return b.failed(ctx, err)
}

// Reserve lengthens the span of t if that claim is alone in line and nobody has drawn a token since. It costs a step.
func (b *Backend) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	if span < 1 || span > limit.Span {
		return false, driver.Permanent(fmt.Errorf(
			"%s: a claim on %.80q reserves 1 to %d tokens, not %d", b.info.Name, t.Key, limit.Span, span))

	}
	var done bool
	err := b.step(ctx, t.Key, func(r *reading, _ *line.Step) error {
		done = r.Reserve(&t, span)
		return nil
	})
	return err == nil && done, err
}

// Break ends the claim of key whose span holds token, at once or after a delay. It costs a step.
func (b *Backend) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	return b.step(ctx, key, func(r *reading, s *line.Step) error {
		if r.beyond(token) {
			return errPart
		}
		_, err := r.Break(s, token, how)
		return err
	})
}

// Adopt gives the claim of t to by, with a full lease. It costs a step.
func (b *Backend) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
	var got driver.Ticket
	var seen *reading
	err := b.step(ctx, t.Key, func(r *reading, s *line.Step) error {
		c, err := r.Adopt(s, &t, &by) // a granted claim is not among arrivals that were not read
		if err == nil {
			c.Node = b.node
			seen, got = r, r.Ticket(s, c)
		}
		return err
	})
	if err != nil {
		return driver.Ticket{}, err
	}
	o, _ := b.claims.enter(driverutil.Ref(t.Key, by.ID))
	b.claims.enters(o, &got, &seen.State, seen.quiet(), nil)
	return got, nil
}

// Detach starts the lease of t again, as Renew does. It takes nothing else: a claim belongs to no process.
func (b *Backend) Detach(ctx context.Context, t driver.Ticket) error {
	defer b.claims.leave(driverutil.Ref(t.Key, t.ID))
	return driverutil.InLine(b.Renew(ctx, []driver.Ticket{t})[0])
}

// Settle removes claims of key that have ended, and grants the lock to those that come next. A waiter does that by
// itself within a second of the end of a lease; it is for a store that knows of an end before. It costs a step, or a
// Read if there is nothing to do.
func (b *Backend) Settle(ctx context.Context, key string) error {
	return b.step(ctx, key, func(*reading, *line.Step) error { return nil })
}

// soon is when those who wait look at a line in which a lease may end before its time.
const soon = 100 * time.Millisecond

// Lend gives the granted claim of t a record of its own, with the lease of t, and returns a version of its line in
// which it has the grant. It is for a store in which something other than time may end a record, such as the
// transaction of sqllock.Tx; waiters look ten times a second from then on. It costs a step.
func (b *Backend) Lend(ctx context.Context, t driver.Ticket) (version string, err error) {
	var seen *reading
	err = b.step(ctx, t.Key, func(r *reading, s *line.Step) error {
		if err := r.missing(t.ID); err != nil {
			return err
		}
		c := r.Find(t.ID)
		if c == nil || !c.Granted {
			return r.Gone(s, t.ID)
		}
		seen, r.Soon = r, soon
		return r.lend(s, c, t.TTL)
	})
	if err != nil {
		return "", err
	}
	return seen.Version, nil
}

// Claims returns the IDs of the claims in the line of key, in order, also of those whose leases have ended. It costs a
// Read. Line describes claims to people, without their IDs.
func (b *Backend) Claims(ctx context.Context, key string) (ids []string, err error) {
	r, err := b.read(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, c := range r.Claims {
		ids = append(ids, c.ID)
	}
	return ids, nil
}

// read reads all of a line, for a call that changes nothing.
func (b *Backend) read(ctx context.Context, key string) (*reading, error) {
	if err := b.ended(ctx); err != nil {
		return nil, err
	}
	st, err := b.store.Read(ctx, key, -1)
	if err != nil {
		return nil, b.failed(ctx, err)
	}
	return open(key, st)
}

// Line describes the line of key, also when nobody is in it. It costs a Read.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	r, err := b.read(ctx, key)
	if err != nil {
		return driver.Line{}, err
	}
	return b.show(r), nil
}

func (b *Backend) show(r *reading) driver.Line {
	s := &line.Step{Wall: r.Now, Mono: sinceEpoch(r.Now)}
	b.purge(r, s)
	return r.Describe(s, r.key)
}

// Lines yields the lines with at least one claim whose keys begin with prefix, by one List.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		if err := b.ended(ctx); err != nil {
			yield(driver.Line{}, err)
			return
		}
		for k, err := range b.store.List(ctx, prefix) {
			var l driver.Line
			var r *reading
			if err = b.failed(ctx, err); err == nil {
				r, err = open(k.Key, k.State)
			}
			if err == nil {
				if l = b.show(r); len(l.Claims) == 0 {
					continue
				}
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}
