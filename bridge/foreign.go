package bridge

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
)

// ForeignLock takes locks of another library, under that library's names and in its format. Its
// methods may be called from many goroutines at once. An error means that the outcome is unknown, unless it matches
// driver.ErrRefused.
type ForeignLock interface {
	// Name is the name of the format, as shown to people.
	Name() string
	// Try takes the lock of key for ttl, or starts its lease again if id holds it. It reports
	// false if another client holds the lock. It may leave id a place in a line, which ends with
	// Release; only a Try that finds its place waits, for up to a second.
	Try(ctx context.Context, key, id string, ttl time.Duration) (bool, error)
	// Renew starts the lease again if id holds the lock, and otherwise reports false and changes
	// nothing.
	Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error)
	// Release frees the lock if id holds it, and otherwise reports false and changes nothing.
	Release(ctx context.Context, key, id string) (bool, error)
	// Close ends what the ForeignLock itself has started.
	Close() error
}

// Foreign returns l as the old store of a bridge. It is not a backend for a Client: a foreign
// lock has no line, no tokens and no marks, and its holders are not seen.
//
// Only exclusive locks can be taken. A claim that waits asks again several times a second, with
// a random pause, and claims that wait have no order among them unless the lock has a line. The
// token of a lock is that of the new store alone. A Break ends a claim in the new store, and frees
// the foreign lock when the holder has been told. Claims with MinHold or LockDelay are refused.
func Foreign(l ForeignLock) driver.Backend {
	return &foreign{lock: l, held: map[driverutil.ClaimRef]bool{}}
}

// tokenless reports whether a store gives no tokens.
func tokenless(b driver.Backend) bool {
	_, ok := b.(*foreign)
	return ok
}

type foreign struct {
	lock  ForeignLock
	owner driverutil.Ownership

	mu   sync.Mutex
	held map[driverutil.ClaimRef]bool // claims that were granted; the others wait, and the store has nothing of them
}

var _ driver.Reserver = (*foreign)(nil)

func (f *foreign) Open() error  { return f.owner.Take(nil) }
func (f *foreign) Close() error { return f.lock.Close() }

// Info says that claims wait, as they do: Await asks again. Nothing else of Fair is kept, and
// the bridge needs nothing else of it.
func (f *foreign) Info() driver.Info {
	return driver.Info{Name: f.lock.Name(), Fair: true, MinTTL: time.Millisecond}
}

func (f *foreign) setHeld(key, id string, held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if held {
		f.held[driverutil.Ref(key, id)] = true
	} else {
		delete(f.held, driverutil.Ref(key, id))
	}
}

func (f *foreign) isHeld(t *driver.Ticket) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held[driverutil.Ref(t.Key, t.ID)]
}

var (
	errForeignKind = driver.Permanent(errors.New(
		"bridge: a foreign lock is exclusive: it has no readers and no permits"))
	// The format has no time for which a lock that was freed stays closed, and a lock of a session has no lease
	// either. Programs of the other library would take it at once.
	errForeignDelay = driver.Permanent(errors.New(
		"bridge: a foreign lock cannot stay closed after a loss; leave out LockDelay"))
)

func (f *foreign) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	switch {
	case !driverutil.Exclusive(&c):
		return driver.Ticket{}, errForeignKind
	case c.LockDelay > 0:
		return driver.Ticket{}, errForeignDelay
	}
	t := driver.Ticket{Claim: c, Token: 1, Left: c.TTL}
	t.WaitTTL = 0
	if f.isHeld(&t) { // Try would take the lock anew if the lease had ended
		err := f.renew(ctx, &t)
		t.Granted = err == nil
		return t, err
	}
	err := f.try(ctx, &t)
	if err == nil && !t.Granted && c.NoWait {
		if _, err := f.lock.Release(ctx, t.Key, t.ID); err != nil {
			return t, driverutil.Unsettled(err) // it may have a place in a line
		}
		return t, &driver.BusyError{Ahead: 1}
	}
	return t, err
}

// try takes the lock if it is free.
func (f *foreign) try(ctx context.Context, t *driver.Ticket) error {
	ok, err := f.lock.Try(ctx, t.Key, t.ID, t.TTL)
	if err != nil {
		return err
	}
	t.Granted, t.Ahead = ok, 1
	if ok {
		t.Ahead = 0
		f.setHeld(t.Key, t.ID, true)
	}
	return nil
}

// The first and the longest pause of a claim that waits, and how often it asks. Programs of other libraries ask again
// after 10 to 250 ms, and take the lock from a claim that asks less often.
const (
	firstPause = 25 * time.Millisecond
	lastPause  = 100 * time.Millisecond
	tries      = 10
)

// Await asks for the lock until it gets it, for about a second.
func (f *foreign) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if f.isHeld(&t) {
		t.Granted, t.Ahead = true, 0
		return t, nil
	}
	for n, pause := 1, firstPause; ; n, pause = n+1, min(2*pause, lastPause) {
		if err := f.try(ctx, &t); err != nil || t.Granted || n == tries {
			return t, err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return t, ctx.Err()
		}
	}
}

func (f *foreign) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	for i := range ts {
		if f.isHeld(&ts[i]) {
			errs[i] = f.renew(ctx, &ts[i])
		}
	}
	return errs
}

func (f *foreign) renew(ctx context.Context, t *driver.Ticket) error {
	ok, err := f.lock.Renew(ctx, t.Key, t.ID, t.TTL)
	if err == nil && !ok {
		return driver.GoneError{}
	}
	return err
}

// Leave frees the lock, also for a claim that waits: the answer to a Try may have been lost.
func (f *foreign) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	held := f.isHeld(&t)
	if held && e.IfWaiting {
		return driver.ErrGranted
	}
	ok, err := f.lock.Release(ctx, t.Key, t.ID)
	if err != nil {
		return err
	}
	f.setHeld(t.Key, t.ID, false)
	if held && !ok {
		return driver.GoneError{}
	}
	return nil
}

// Reserve does what there is to do for a claim without tokens.
func (f *foreign) Reserve(context.Context, driver.Ticket, int64) (bool, error) { return true, nil }

func (f *foreign) Break(context.Context, string, int64, driver.Break) error {
	return driver.Permanent(fmt.Errorf("bridge: %s cannot break a lock", f.lock.Name()))
}

func (f *foreign) Line(_ context.Context, key string) (driver.Line, error) {
	return driver.Line{Key: key}, nil
}

func (f *foreign) Lines(context.Context, string) iter.Seq2[driver.Line, error] {
	return func(func(driver.Line, error) bool) {}
}
