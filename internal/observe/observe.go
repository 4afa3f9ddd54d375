// Package observe has what promfence and otelfence make of the events of a Client: the
// words for results and causes, and what is held and waited for at the moment.
package observe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

// Acquired is the result of a wait that ended with a lease.
const Acquired = "acquired"

// Refusal is the result of a call that ended without a lease, because of err.
func Refusal(err error) string {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "canceled"
	case errors.Is(err, fencelock.ErrNotAcquired):
		return "not_acquired"
	case errors.Is(err, fencelock.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, fencelock.ErrClosed):
		return "closed"
	}
	return "invalid"
}

// Results of a holding.
const (
	Released = "released"
	Detached = "detached" // it goes on in another process
	Lost     = "lost"
)

// Release is the result of a holding that ended without a loss, with the error of its release.
func Release(err error) string {
	if errors.Is(err, fencelock.ErrDetached) {
		return Detached
	}
	return Released
}

// Cause is why a lease was lost, or is at risk: err says so, and nil is a renewal that is late.
func Cause(err error) string {
	for _, c := range []struct {
		err  error
		text string
	}{
		{fencelock.ErrMaxHold, "max_hold"},
		{fencelock.ErrStalled, "stalled"},
		{fencelock.ErrBroken, "broken"},
		{fencelock.ErrExpired, "expired"},
		{fencelock.ErrClosed, "closed"},
		{fencelock.ErrUnavailable, "store"},
	} {
		if errors.Is(err, c.err) {
			return c.text
		}
	}
	return "late"
}

// StoreFailed reports whether the store gave no answer, or refused.
func StoreFailed(err error) bool { return errors.Is(err, fencelock.ErrUnavailable) }

// Open is what is held and waited for at the moment, each since some time and with the labels
// of type L. The zero value is empty. All methods may be called from many goroutines at once.
type Open[L comparable] struct {
	mu    sync.Mutex
	holds map[hold]since[L]
	waits map[uint64]since[L]
}

type hold struct {
	key   string
	token fence.Token
	kind  fencelock.Kind
}

type since[L comparable] struct {
	at     time.Time
	labels L
}

func holdOf(e fencelock.Event) hold { return hold{e.Key, e.Token, e.Kind} }

// Lost forgets everything if events were dropped before e, as nobody knows what they ended. It
// returns how many were.
func (o *Open[L]) Lost(e fencelock.Event) uint64 {
	if e.Dropped > 0 {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.holds, o.waits = nil, nil
	}
	return e.Dropped
}

// Waits notes that a call waits, by its event Waiting.
func (o *Open[L]) Waits(e fencelock.Event, labels L) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waits == nil {
		o.waits = map[uint64]since[L]{}
	}
	o.waits[e.Wait] = since[L]{e.Time, labels}
}

// Waited notes that a call does not wait any longer, by its event Acquired or Refused.
func (o *Open[L]) Waited(e fencelock.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.waits, e.Wait)
}

// Holds notes that a lock is held, by its event Acquired.
func (o *Open[L]) Holds(e fencelock.Event, labels L) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holds == nil {
		o.holds = map[hold]since[L]{}
	}
	o.holds[holdOf(e)] = since[L]{e.Time, labels}
}

// Held notes that a lock is not held any longer, by its event Released or Lost.
func (o *Open[L]) Held(e fencelock.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.holds, holdOf(e))
}

// Sum is how many are open with the same labels, and since when the oldest is.
type Sum struct {
	Count  int
	Oldest time.Time
}

// Age is how long the oldest is open at time now; 0 if none is.
func (s Sum) Age(now time.Time) time.Duration {
	if s.Count == 0 {
		return 0
	}
	return max(now.Sub(s.Oldest), 0)
}

// Add adds what is open to the sums of each kind of labels.
func (o *Open[L]) Add(holds, waits map[L]Sum) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.holds {
		add(holds, s)
	}
	for _, s := range o.waits {
		add(waits, s)
	}
}

func add[L comparable](sums map[L]Sum, s since[L]) {
	sum := sums[s.labels]
	if sum.Count == 0 || s.at.Before(sum.Oldest) {
		sum.Oldest = s.at
	}
	sum.Count++
	sums[s.labels] = sum
}
