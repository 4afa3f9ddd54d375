package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// Backend keeps each lock in two stores. Its methods may be called from many goroutines at
// once. Each costs a request to both stores at most, one after the other; while a claim waits,
// Await asks only the store in whose line it waits.
type Backend struct {
	old, new store
	info     driver.Info
	owner    driverutil.Ownership
	claims   table

	closing context.Context // ends with Close
	close   context.CancelFunc

	mu     sync.Mutex
	timers map[*time.Timer]struct{} // of claims that were lost in one store, see giveUp
}

// store is one of the two.
type store struct {
	driver.Backend
	name string // in errors
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Alarm    = (*Backend)(nil)
	_ driver.Reserver = (*Backend)(nil)
)

// New returns a Backend that takes each lock in old first and in new second. It sends
// nothing; Open returns an error for two stores that cannot be bridged.
//
// The Backend owns both: Close closes them.
func New(old, new driver.Backend) *Backend {
	b := &Backend{timers: map[*time.Timer]struct{}{}}
	b.closing, b.close = context.WithCancel(context.Background())
	b.claims.byRef = map[driverutil.ClaimRef]*claim{}
	b.old, b.new = store{old, "the old store"}, store{new, "the new store"}
	if old == nil || new == nil {
		return b
	}
	o, n := old.Info(), new.Info()
	b.old.name += " (" + o.Name + ")"
	b.new.name += " (" + n.Name + ")"
	b.info = driver.Info{
		Name:        o.Name + " to " + n.Name,
		Namespace:   o.Namespace + " to " + n.Namespace,
		Fair:        o.Fair && n.Fair,
		Linger:      o.Linger && n.Linger,
		SharedLease: o.SharedLease || n.SharedLease,
		MinTTL:      max(o.MinTTL, n.MinTTL),
		MaxTTL:      cmp.Or(min(o.MaxTTL, n.MaxTTL), o.MaxTTL, n.MaxTTL), // 0 sets no limit
	}
	return b
}

// invalid returns why the two stores cannot be bridged.
func (b *Backend) invalid() error {
	var err error
	switch {
	case b.old.Backend == nil || b.new.Backend == nil:
		err = errors.New("bridge: one of the two stores is nil")
	case b.old.Backend == b.new.Backend:
		err = errors.New("bridge: the old store is the new one too: a lock would be held in one store only")
	case !b.new.Info().After && !tokenless(b.old.Backend):
		err = fmt.Errorf("bridge: %s cannot follow the tokens of another store, so the tokens of a lock "+
			"would not rise while the fleet moves", b.new.name)
	default:
		return nil
	}
	return driver.Permanent(err)
}

// Open takes both stores over for one Client.
func (b *Backend) Open() error {
	if err := b.owner.Take(b.invalid()); err != nil {
		return err
	}
	for _, s := range []store{b.old, b.new} {
		if err := s.Open(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// Info reports what both stores keep. A lease is at most the shorter MaxTTL.
func (b *Backend) Info() driver.Info { return b.info }

// ready returns why a call cannot begin.
func (b *Backend) ready(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case b.closing.Err() != nil:
		return driver.ErrClosed
	}
	return nil
}

// Close closes both stores and leaves claims alone.
func (b *Backend) Close() error {
	b.close()
	b.mu.Lock()
	for t := range b.timers {
		t.Stop()
	}
	clear(b.timers)
	b.mu.Unlock()
	return errors.Join(b.new.Close(), b.old.Close())
}

// Alarm calls f for a claim that was broken in either store.
func (b *Backend) Alarm(f func(id string, gone driver.GoneError)) (stop func()) {
	var stops []func()
	for _, s := range []store{b.old, b.new} {
		if a, ok := s.Backend.(driver.Alarm); ok {
			stops = append(stops, a.Alarm(f))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// lost is the GoneError of a claim that s has lost.
func (s *store) lost(err error) error {
	var gone driver.GoneError
	if errors.As(err, &gone) && gone.Reason == "" && !gone.Broken {
		gone.Reason = s.name + " has lost it"
		return gone
	}
	return err
}

// failed names s in an error that is not a result of the contract.
func (s *store) failed(err error) error {
	var busy *driver.BusyError
	if errors.As(err, &busy) {
		return unmarked(busy)
	}
	if err == nil || driver.Gone(err) || errors.Is(err, driver.ErrGranted) || errors.Is(err, driver.ErrReused) ||
		errors.Is(err, driver.ErrKind) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s: %w", s.name, err)
}
