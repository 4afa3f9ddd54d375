package driver

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Alarm is optional: a backend that hears at once of claims that were broken.
// It calls f with the ID and the reason, from any goroutine; f does not block.
// The message is a hint that may be lost: the next Renew says the same.
type Alarm interface {
	Alarm(f func(id string, gone ErrGone)) (stop func())
}

// Alarms is the list of those who called Alarm. The zero value is ready. All methods
// may be called from many goroutines at once.
type Alarms struct {
	mu   sync.Mutex
	subs []*alarmFunc // replaced as a whole, so that Notify can read it without mu
	n    atomic.Int64
}

type alarmFunc struct {
	f func(id string, gone ErrGone)
}

// Subscribe adds f. After stop has returned, no later Notify calls f; one that is
// under way may still call f once.
func (a *Alarms) Subscribe(f func(id string, gone ErrGone)) (stop func()) {
	s := &alarmFunc{f}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set(append(slices.Clip(a.subs), s))
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.set(slices.DeleteFunc(slices.Clone(a.subs), func(b *alarmFunc) bool { return b == s }))
	}
}

func (a *Alarms) set(subs []*alarmFunc) {
	a.subs = subs
	a.n.Store(int64(len(subs)))
}

// Len returns how many have subscribed. It takes no lock.
func (a *Alarms) Len() int { return int(a.n.Load()) }

// Notify calls every subscriber with a claim that was broken, in the order in which
// they subscribed, on the caller's goroutine and with no lock held.
func (a *Alarms) Notify(id string, gone ErrGone) {
	a.mu.Lock()
	subs := a.subs
	a.mu.Unlock()
	for _, s := range subs {
		s.f(id, gone)
	}
}
