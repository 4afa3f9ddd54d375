package swaplock

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/line"
)

// Backend keeps locks in a Store. Its methods may be called from many goroutines at once.
type Backend struct {
	driver.Ownership
	store   Store
	info    driver.Info
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // the goroutines that it has started
	waiters waiters

	mu     sync.Mutex
	queues map[string][]*job // the steps that wait, of keys of which one is under way
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Reserver = (*Backend)(nil)
	_ driver.Detacher = (*Backend)(nil)
)

// New returns a Backend that keeps its lines in store.
func New(store Store) *Backend {
	traits := store.Traits()
	b := &Backend{store: store, info: driver.Info{
		Name: traits.Name, Namespace: traits.Namespace, Fair: true, Linger: true, Lease: driver.PerClaim,
		MinTTL: line.MinTTL, MaxTTL: line.MaxTTL,
	}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.queues = make(map[string][]*job)
	b.waiters.byKey, b.waiters.seen = make(map[string]map[*waiter]bool), make(map[string]string)
	return b
}

// Open takes the backend over for one Client.
func (b *Backend) Open() error { return b.Take(nil) }

// Info says that a Backend keeps every law of a line.
func (b *Backend) Info() driver.Info { return b.info }

// Close ends what the Backend has started. The claims stay.
func (b *Backend) Close() error {
	b.cancel()
	b.running.Wait()
	return nil
}

// Enter joins the line of c.Key, or finds the claim with c.ID there and starts its lease again.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := c.Validate(b.info); err != nil {
		return driver.Ticket{}, err
	}
	for {
		var t driver.Ticket
		var found bool // with a lease that the store renews
		err := b.step(ctx, c.Key, func(r *reading, s *line.Step) error {
			own := r.Find(c.ID)
			if found = own != nil && r.places[own].place != inDocument; found {
				t = r.Ticket(s, own)
				t.TTL = c.Lease(own.Granted)
				return c.CheckFound(own.Capacity, own.Weight)
			}
			own, err := r.Enter(s, c)
			if err == nil {
				t = r.Ticket(s, own)
			}
			return err
		})
		switch {
		case err != nil:
			return driver.Ticket{}, err
		case !found:
			return t, nil
		}
		alive, err := b.store.Renew(ctx, []Lease{{c.Key, c.ID, t.TTL}})
		if err != nil || alive[0] {
			t.Left = max(t.Left, t.TTL)
			return t, b.failed(ctx, err)
		}
	}
}

// Leave takes the claim of t out of its line and wakes everyone that this makes granted.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	return b.step(ctx, t.Key, func(r *reading, s *line.Step) error {
		return r.Leave(s, &t, e)
	})
}

// Reserve lengthens the span of t if that claim is alone in line and nobody has drawn a token since.
func (b *Backend) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	if span < 1 || span > driver.MaxSpan {
		return false, &driver.PermanentError{Err: fmt.Errorf(
			"%s: a claim on %.80q reserves 1 to %d tokens, not %d", b.info.Name, t.Key, driver.MaxSpan, span)}
	}
	var done bool
	err := b.step(ctx, t.Key, func(r *reading, _ *line.Step) error {
		done = r.Reserve(&t, span)
		return nil
	})
	return err == nil && done, err
}

// Break ends the claim of key whose span holds token, at once or after linger.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string, linger time.Duration) error {
	return b.step(ctx, key, func(r *reading, s *line.Step) error {
		_, err := r.Break(s, token, reason, linger)
		return err
	})
}

// Adopt gives the claim of t to by.
func (b *Backend) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
	for {
		var got driver.Ticket
		var found bool // by an earlier Adopt, with a record
		err := b.step(ctx, t.Key, func(r *reading, s *line.Step) error {
			c, err := r.Adopt(s, &t, &by)
			if err == nil {
				got = r.Ticket(s, c)
				found = r.settle(c) == inRecord
			}
			return err
		})
		switch {
		case err != nil:
			return driver.Ticket{}, err
		case !found:
			return got, nil
		}
		alive, err := b.store.Renew(ctx, []Lease{{t.Key, by.ID, by.TTL}})
		if err != nil || alive[0] {
			return got, b.failed(ctx, err)
		}
	}
}

// Detach starts the lease of t again. A claim belongs to no process.
func (b *Backend) Detach(ctx context.Context, t driver.Ticket) error {
	return b.Renew(ctx, []driver.Ticket{t})[0]
}

// Line describes the line of key, also when nobody is in it.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	if err := b.ended(ctx); err != nil {
		return driver.Line{}, err
	}
	st, err := b.store.Read(ctx, key, -1)
	if err != nil {
		return driver.Line{}, b.failed(ctx, err)
	}
	return describe(key, st)
}

func describe(key string, st State) (driver.Line, error) {
	r, err := open(key, st)
	if err != nil {
		return driver.Line{}, err
	}
	s := &line.Step{Wall: st.Now, Mono: sinceEpoch(st.Now)}
	r.Purge(s)
	return r.Describe(s, key), nil
}

// Lines yields the lines with at least one claim whose keys begin with prefix.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		if err := b.ended(ctx); err != nil {
			yield(driver.Line{}, err)
			return
		}
		for k, err := range b.store.List(ctx, prefix) {
			var l driver.Line
			if err = b.failed(ctx, err); err == nil {
				l, err = describe(k.Key, k.State)
			}
			if err == nil && len(l.Claims) == 0 {
				continue
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}
