package memlock

import (
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// alarm is one listener.
type alarm struct {
	f func(id string, gone driver.ErrGone)
}

// Alarm calls f for each claim that Break ends, on the goroutine of that Break
// and before it returns. A Break that is under way while stop is called may still
// call f once.
func (s *Store) Alarm(f func(id string, gone driver.ErrGone)) (stop func()) {
	a := &alarm{f}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarms = append(s.alarms, a)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.alarms = slices.DeleteFunc(s.alarms, func(b *alarm) bool { return a == b })
	}
}

// ring tells all listeners, in the order in which they came.
func (s *Store) ring(id string, gone driver.ErrGone) {
	s.mu.Lock()
	listeners := slices.Clone(s.alarms)
	s.mu.Unlock()
	for _, a := range listeners {
		a.f(id, gone)
	}
}
