package memlock

import (
	"maps"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/line"
)

// Store keeps lines of claims in memory. Its methods may be called from many
// goroutines at once. Each is one atomic step under one mutex, and none costs a
// round trip.
type Store struct {
	mu        sync.Mutex
	start     time.Time // the zero of line.Step.Mono
	lines     map[string]*line.Line
	sweepAt   int                           // the number of lines at which sweep runs next
	at        line.Step                     // the step that runs
	waiting   map[*line.Claim]chan struct{} // closed when there is news of the claim
	alarms    driverutil.Alarms
	histories map[string][]remembered // by key; each by token
}

var (
	_ driver.Backend  = (*Store)(nil)
	_ driver.Reserver = (*Store)(nil)
	_ driver.Alarm    = (*Store)(nil)
	_ driver.Detacher = (*Store)(nil)

	_ record.Store = (*Store)(nil)
)

// New returns an empty Store, ready for use.
func New() *Store {
	return &Store{
		start:     time.Now(),
		lines:     make(map[string]*line.Line),
		waiting:   make(map[*line.Claim]chan struct{}),
		histories: make(map[string][]remembered),
	}
}

// Open lets a Store have any number of Clients: it is the store itself, not a connection.
func (s *Store) Open() error { return nil }

// Info reports that a Store keeps every law but those of ballots.
func (s *Store) Info() driver.Info {
	return driver.Info{
		Name:   "memory",
		Fair:   true,
		Linger: true,
		After:  true,
		MinTTL: line.MinTTL,
		MaxTTL: line.MaxTTL,
	}
}

// Close does nothing and returns nil: the Store is the data itself, and other
// Clients may still use it. All calls go on working.
func (s *Store) Close() error { return nil }

// Flush forgets everything, counters and marks too, as FLUSHALL does on Redis.
// Every waiter learns at once that its claim is gone. Tests call it to see what a
// program does when its store loses data. Later tokens start at the clock again.
func (s *Store) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wake := range s.waiting {
		close(wake)
	}
	clear(s.waiting)
	clear(s.lines)
	clear(s.histories)
}

// Alarm calls f for each claim that Break ends, on the goroutine of that Break
// and before it returns. A Break that is under way while stop is called may still
// call f once.
func (s *Store) Alarm(f func(id string, gone driver.GoneError)) (stop func()) {
	return s.alarms.Subscribe(f)
}

// now begins a step. The last one is over.
func (s *Store) now() *line.Step {
	at := &s.at
	at.Wall = time.Now()
	at.Mono = at.Wall.Sub(s.start)
	clear(at.News)
	at.News = at.News[:0]
	return at
}

// waiter returns what is closed when there is news of c.
func (s *Store) waiter(c *line.Claim) <-chan struct{} {
	wake := s.waiting[c]
	if wake == nil {
		wake = make(chan struct{})
		s.waiting[c] = wake
	}
	return wake
}

// wake ends the Awaits of all whom a step concerns.
func (s *Store) wake(news []line.News) {
	if len(s.waiting) == 0 {
		return
	}
	for _, n := range news {
		if wake := s.waiting[n.Claim]; wake != nil {
			close(wake)
			delete(s.waiting, n.Claim)
		}
	}
}

// keep stores the line of key.
func (s *Store) keep(key string, l *line.Line, at *line.Step) {
	if len(s.lines) >= s.sweepAt {
		s.sweep(at)
	}
	s.lines[key] = l
}

// sweep forgets the idle lines. It runs each time that the number of lines has
// doubled, so it costs a constant time for each new line, and no goroutine.
func (s *Store) sweep(at *line.Step) {
	maps.DeleteFunc(s.lines, func(_ string, l *line.Line) bool { return l.Idle(at) })
	s.sweepAt = max(1024, 2*len(s.lines))
}
