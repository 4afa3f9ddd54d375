package driverutil

import (
	"slices"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// Alarms implements driver.Alarm for a backend. The zero value is ready. All methods may be
// called from many goroutines at once.
type Alarms struct {
	mu   sync.Mutex
	subs []*func(id string, gone driver.GoneError) // replaced as a whole, so that Notify can read it without mu
}

// Subscribe adds f. After stop has returned, no later Notify calls f; one that is
// under way may still call f once.
func (a *Alarms) Subscribe(f func(id string, gone driver.GoneError)) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.subs = append(slices.Clip(a.subs), &f)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		i := slices.Index(a.subs, &f)
		if i >= 0 {
			a.subs = slices.Concat(a.subs[:i], a.subs[i+1:])
		}
	}
}

func (a *Alarms) list() []*func(id string, gone driver.GoneError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.subs
}

// Len returns the number of subscribers.
func (a *Alarms) Len() int { return len(a.list()) }

// Notify calls every subscriber with a claim that was broken, in the order in which
// they subscribed, on the caller's goroutine and with no lock held.
func (a *Alarms) Notify(id string, gone driver.GoneError) {
	for _, f := range a.list() {
		(*f)(id, gone)
	}
}
