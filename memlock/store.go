package memlock

import (
	"maps"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
)

// The limits of a TTL and of a linger, as Info reports them.
const (
	minTTL = time.Millisecond
	maxTTL = 366 * 24 * time.Hour
)

// Store keeps lines of claims in memory. Its methods may be called from many
// goroutines at once. Each is one atomic step under one mutex, and none costs a
// round trip.
type Store struct {
	mu         sync.Mutex
	start      time.Time // the zero of instant.mono
	lines      map[string]*queue
	sweepAt    int // the number of lines at which sweep runs next
	tombstones tombstones
	alarms     driver.Alarms
	histories  map[string][]remembered // by key; each by token
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
	return &Store{start: time.Now(), lines: make(map[string]*queue), histories: make(map[string][]remembered)}
}

// Open lets a Store have any number of Clients: it is the store itself, not a connection.
func (s *Store) Open() error { return nil }

// Info says that a Store keeps every law but those of ballots.
func (s *Store) Info() driver.Info {
	return driver.Info{
		Name:      "memory",
		Fair:      true,
		Fencing:   true,
		Linger:    true,
		Mark:      true,
		WaitTTL:   true,
		Semaphore: true,
		Push:      true,
		Lease:     driver.PerClaim,
		MinTTL:    minTTL,
		MaxTTL:    maxTTL,
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
	for _, q := range s.lines {
		for _, c := range q.claims {
			c.wakeWaiter()
		}
	}
	clear(s.lines)
	clear(s.histories)
	s.tombstones = tombstones{}
}

// Alarm calls f for each claim that Break ends, on the goroutine of that Break
// and before it returns. A Break that is under way while stop is called may still
// call f once.
func (s *Store) Alarm(f func(id string, gone driver.GoneError)) (stop func()) {
	return s.alarms.Subscribe(f)
}

// instant is one reading of the clock. People and tokens use the wall clock;
// everything that expires uses the monotonic time since the Store was made.
type instant struct {
	wall time.Time
	mono time.Duration
}

// line returns the line of key without its expired claims. A key without a line
// gets an empty one, which keep stores.
func (s *Store) line(key string, now instant) *queue {
	q := s.lines[key]
	if q == nil {
		return &queue{}
	}
	q.purge(now)
	return q
}

// idleFor is how long a line is kept after the clock has passed its last token. A
// clock that is set back by less cannot make a new line draw an older token.
const idleFor = 24 * time.Hour

// keep stores the line of key, unless it is there: then a token was drawn from it.
func (s *Store) keep(key string, q *queue, now instant) {
	if q.lastToken != 0 {
		return
	}
	if len(s.lines) >= s.sweepAt {
		s.sweep(now)
	}
	s.lines[key] = q
}

// sweep forgets the idle lines. It runs each time that the number of lines has
// doubled, so it costs a constant time for each new line, and no goroutine.
func (s *Store) sweep(now instant) {
	maps.DeleteFunc(s.lines, func(_ string, q *queue) bool {
		q.purge(now)
		return len(q.claims) == 0 && q.mark == "" && now.wall.UnixMicro()-q.lastToken > idleFor.Microseconds()
	})
	s.sweepAt = max(1024, 2*len(s.lines))
}

func clampTTL(d time.Duration) time.Duration { return min(max(d, minTTL), maxTTL) }
