// Package observe has what promfence and otelfence make of the events of a Client: the
// words for results and causes, and what is held and waited for at the moment.
package observe

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
	"weak"

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

// Labels are those that all metrics have.
type Labels struct {
	Kind string
	Lock string
}

// Labeler makes the label Lock of a key; nil: there is no such label.
type Labeler func(key string) string

// Labels returns those of e.
func (f Labeler) Labels(e fencelock.Event) Labels {
	l := Labels{Kind: e.Kind}
	if f != nil {
		l.Lock = f(e.Key)
	}
	return l
}

// Clients are what several Clients have open. The zero value is empty. All methods may be
// called from many goroutines at once.
type Clients struct {
	mu   sync.Mutex
	list []weak.Pointer[Open] // of those that still measure
}

// Add adds what one Client has open, for as long as its OnEvent refers to o.
func (c *Clients) Add(o *Open) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, weak.Make(o))
}

// Sums sums up what all of them have open. Without the label Lock, whose values are not known
// before, each kind has a sum, also where nothing is open.
func (c *Clients) Sums(byLock bool) (holds, waits map[Labels]Sum) {
	c.mu.Lock()
	defer c.mu.Unlock()
	holds, waits = map[Labels]Sum{}, map[Labels]Sum{}
	if !byLock {
		for _, kind := range []string{"exclusive", "shared", "permits"} {
			holds[Labels{Kind: kind}], waits[Labels{Kind: kind}] = Sum{}, Sum{}
		}
	}
	c.list = slices.DeleteFunc(c.list, func(p weak.Pointer[Open]) bool {
		o := p.Value()
		if o != nil {
			o.add(holds, waits)
		}
		return o == nil
	})
	return holds, waits
}

// Open is what one Client holds and waits for at the moment. The zero value is empty. All
// methods may be called from many goroutines at once.
type Open struct {
	mu    sync.Mutex
	holds map[hold]since
	waits map[uint64]since
}

type hold struct {
	key   string
	token fence.Token
	kind  string
}

type since struct {
	at     time.Time
	labels Labels
}

func holdOf(e fencelock.Event) hold { return hold{e.Key, e.Token, e.Kind} }

// Lost forgets everything if events were dropped before e, as nobody knows what they ended. It
// returns how many were.
func (o *Open) Lost(e fencelock.Event) uint64 {
	if e.Dropped > 0 {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.holds, o.waits = nil, nil
	}
	return e.Dropped
}

// Waits notes that a call waits, by its event Waiting.
func (o *Open) Waits(e fencelock.Event, labels Labels) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waits == nil {
		o.waits = map[uint64]since{}
	}
	o.waits[e.Wait] = since{e.Time, labels}
}

// Waited notes that a call does not wait any longer, by its event Acquired or Refused.
func (o *Open) Waited(e fencelock.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.waits, e.Wait)
}

// Holds notes that a lock is held, by its event Acquired.
func (o *Open) Holds(e fencelock.Event, labels Labels) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holds == nil {
		o.holds = map[hold]since{}
	}
	o.holds[holdOf(e)] = since{e.Time, labels}
}

// Held notes that a lock is not held any longer, by its event Released or Lost.
func (o *Open) Held(e fencelock.Event) {
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

func (o *Open) add(holds, waits map[Labels]Sum) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.holds {
		addTo(holds, s)
	}
	for _, s := range o.waits {
		addTo(waits, s)
	}
}

func addTo(sums map[Labels]Sum, s since) {
	sum := sums[s.labels]
	if sum.Count == 0 || s.at.Before(sum.Oldest) {
		sum.Oldest = s.at
	}
	sum.Count++
	sums[s.labels] = sum
}
