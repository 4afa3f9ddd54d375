package memlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// What a Store takes for a TTL or a linger, as its Info says.
const (
	minTTL = time.Millisecond
	maxTTL = 366 * 24 * time.Hour
)

// lastToken is beyond what any clock makes of a token.
const lastToken = 1<<63 - 1

// maxAwait is the longest that Await waits before it looks again.
const maxAwait = time.Second

// Store keeps lines of claims in memory. Its methods may be called from many
// goroutines at once, each is one atomic step, and none costs a round trip.
//
// Joining and leaving a line takes the same time however long the line is, as
// long as all claims of it have one capacity; with two sizes of one semaphore in
// use, leaving takes time proportional to the length of the line.
type Store struct {
	mu     sync.Mutex
	start  time.Time // all instants are durations since then
	member *member   // nil if it takes no ballots
	lines  map[string]*line
	order  []*line // the same lines, each at its own index, for the sweep
	hand   int     // where in order the sweep goes on
	rests  rests
	alarms []*alarm
}

var (
	_ driver.Backend    = (*Store)(nil)
	_ driver.LineReader = (*Store)(nil)
	_ driver.Reserver   = (*Store)(nil)
	_ driver.Alarm      = (*Store)(nil)
)

// New returns an empty Store, ready for use.
func New() *Store {
	return &Store{start: time.Now(), lines: make(map[string]*line)}
}

// Info says that a Store keeps every law; that of ballots if NewMember made it.
func (s *Store) Info() driver.Info {
	info := driver.Info{
		Name:      "memory",
		Fair:      true,
		Fencing:   true,
		Linger:    true,
		Mark:      true,
		Semaphore: true,
		Push:      true,
		Lease:     driver.PerClaim,
		MinTTL:    minTTL,
		MaxTTL:    maxTTL,
	}
	if s.member != nil {
		info.Ballot, info.MaxTTL = true, s.member.MaxTTL
	}
	return info
}

// Close does nothing and answers nil: the Store is the data itself, there is
// nothing beside it to end, and other Clients may still be using it. All calls go
// on working, and claims stay until they leave or expire.
func (s *Store) Close() error { return nil }

// Flush forgets everything, counters and marks too, as a FLUSHALL does to a
// Redis. Whoever waits learns at once that its claim is gone. It is for tests of
// what a program does when its store loses data. Tokens drawn afterwards start at
// the clock again, so they rise above those from before as soon as the clock has. A
// member begins its quarantine with the next ballot.
func (s *Store) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.order {
		for c := l.head; c != nil; c = c.next {
			c.rouse()
		}
	}
	clear(s.lines)
	s.order, s.hand = nil, 0
	s.rests = rests{}
	s.member.forget()
}

// now reads the clock. It is called under mu, so that steps and the instants at
// which they are judged have the same order.
func (s *Store) now() instant {
	t := time.Now()
	return instant{t, t.Sub(s.start)}
}

// instant is one reading of the clock: the wall for people and tokens, the
// monotonic time since the Store was made for everything that expires.
type instant struct {
	wall time.Time
	mono time.Duration
}

// Enter joins the line of c.Key, or starts again the lease of the claim with
// c.ID that is there already.
func (s *Store) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return s.enter(ctx, c, false)
}

func (s *Store) enter(ctx context.Context, c driver.Claim, again bool) (driver.Ticket, error) {
	if err := ctx.Err(); err != nil {
		return driver.Ticket{}, err
	}
	if err := s.check(&c); err != nil {
		return driver.Ticket{}, &driver.PermanentError{Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l := s.lines[c.Key]
	if l != nil {
		l.purge(now)
		if old := l.find(c.ID); old != nil && !old.lingering {
			l.renew(old, c.TTL, now)
			return l.ticket(old, now), nil
		}
	}
	// A claim that lingers has left: a late repeat of its Enter must not bring it
	// back, nor stand in line a second time.
	if r := s.rests.find(c.Key, c.ID, now); r != nil {
		return driver.Ticket{}, r.gone
	}
	if l != nil && l.find(c.ID) != nil {
		return driver.Ticket{}, errLeft
	}
	if l != nil && l.head != nil {
		if (l.head.Capacity == driver.RW) != (c.Capacity == driver.RW) {
			return driver.Ticket{}, driver.ErrKind
		}
		if c.NoWait && l.sum+c.Weight > c.Capacity {
			return driver.Ticket{}, l.busy(l.n, now)
		}
	}
	if c.Ballot != 0 {
		if err := s.member.judge(l, &c, again, now); err != nil {
			return driver.Ticket{}, err
		}
	}
	if l == nil {
		l = s.open(c.Key, now)
	}
	return l.ticket(l.join(c, now), now), nil
}

// check refuses what the core never sends.
func (s *Store) check(c *driver.Claim) error {
	longest := s.Info().MaxTTL
	switch {
	case c.Key == "" || len(c.Key) > driver.MaxKey:
		return fmt.Errorf("memory: a key has 1 to %d bytes, not %d", driver.MaxKey, len(c.Key))
	case c.ID == "":
		return fmt.Errorf("memory: the claim on %q has no id", c.Key)
	case c.Capacity < 1 || c.Capacity > driver.RW || c.Weight < 1 || c.Weight > c.Capacity:
		return fmt.Errorf("memory: a claim on %q cannot have weight %d of %d", c.Key, c.Weight, c.Capacity)
	case c.TTL < minTTL || c.TTL > longest:
		return fmt.Errorf("memory: the lease on %q must last %v to %v, not %v", c.Key, minTTL, longest, c.TTL)
	case c.Span < 1 || c.Span > driver.MaxSpan:
		return fmt.Errorf("memory: a claim on %q reserves 1 to %d tokens, not %d", c.Key, driver.MaxSpan, c.Span)
	case c.Ballot != 0 && s.member == nil:
		return fmt.Errorf("memory: no ballots are taken, as for %q: NewMember makes a store that takes them", c.Key)
	case c.Ballot < 0 || c.Ballot > lastToken-c.Span:
		return fmt.Errorf("memory: the ballot %d on %q is no token", c.Ballot, c.Key)
	}
	return nil
}

// Await returns when the claim of t is granted or gone, when a claim of its line
// may have expired, or after a second.
func (s *Store) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	wake, d, t, err := s.stand(ctx, t)
	if wake == nil {
		return t, err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
		return driver.Ticket{}, ctx.Err()
	}
	_, _, t, err = s.stand(ctx, t)
	return t, err
}

// stand looks where the claim of t stands. If it waits, wake is closed once it is
// granted or gone, and after d somebody in line may have expired.
func (s *Store) stand(ctx context.Context, t driver.Ticket) (wake <-chan struct{}, d time.Duration, _ driver.Ticket, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, driver.Ticket{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l, c := s.alive(t.Key, t.ID, now)
	if c == nil {
		return nil, 0, driver.Ticket{}, s.gone(t.Key, t.ID, now)
	}
	t = l.ticket(c, now)
	if c.granted {
		return nil, 0, t, nil
	}
	if c.wake == nil {
		c.wake = make(chan struct{})
	}
	return c.wake, min(maxAwait, l.soonest-now.mono), t, nil
}

// Renew starts the leases of ts again, in one step for all of them.
func (s *Store) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	if err := ctx.Err(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i := range ts {
		t := &ts[i]
		l, c := s.alive(t.Key, t.ID, now)
		if c == nil {
			errs[i] = s.gone(t.Key, t.ID, now)
			continue
		}
		l.renew(c, t.TTL, now)
	}
	return errs
}

// Leave takes the claim of t out of its line and wakes everyone that this makes
// granted.
func (s *Store) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l, c := s.alive(t.Key, t.ID, now)
	var err error
	if c == nil && (l == nil || l.marked == nil || l.marked.id != t.ID) {
		err = s.gone(t.Key, t.ID, now)
	}
	if t.Token == 0 {
		s.rests.lay(t.Key, t.ID, now.mono+clampTTL(t.TTL), errLeft)
	}
	if c == nil {
		return err
	}
	if e.Mark != "" && c.granted {
		l.marked = &marked{e.Mark, c.ID}
	}
	if e.Linger > 0 {
		l.linger(c, now.mono+clampTTL(e.Linger))
		return nil
	}
	l.remove(c)
	l.grant(now)
	return nil
}

// Reserve lengthens the span of t, if that is the only claim in line and nobody has drawn a
// token since.
func (s *Store) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if span < 1 || span > driver.MaxSpan {
		return false, &driver.PermanentError{Err: fmt.Errorf("memory: a claim on %q reserves 1 to %d tokens, not %d", t.Key, driver.MaxSpan, span)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, c := s.alive(t.Key, t.ID, s.now())
	if c == nil || l.n > 1 || l.last != c.token+c.Span-1 || c.Ballot != 0 {
		return false, nil
	}
	c.Span = max(c.Span, span)
	l.last = c.token + c.Span - 1
	return true, nil
}

// Break ends the claim of key whose span holds token, tells its holder if that
// one listens, and wakes everyone that this makes granted.
func (s *Store) Break(ctx context.Context, key string, token int64, reason string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	id, gone, ok := s.evict(key, token, reason)
	if !ok {
		return driver.ErrGone{}
	}
	// Outside of mu: what is called may ask the Store something.
	s.ring(id, gone)
	return nil
}

// evict takes the claim of key whose span holds token out of its line.
func (s *Store) evict(key string, token int64, reason string) (id string, gone driver.ErrGone, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l := s.lines[key]
	if l == nil {
		return "", gone, false
	}
	l.purge(now)
	for c := l.head; c != nil; c = c.next {
		if token < c.token || token-c.token >= c.Span {
			continue
		}
		gone = driver.ErrGone{Reason: reason, Broken: true}
		s.rests.lay(key, c.ID, c.expires, gone)
		l.remove(c)
		l.grant(now)
		return c.ID, gone, true
	}
	return "", gone, false
}

// alive finds the claim with id in the line of key, if it lives and has not left.
func (s *Store) alive(key, id string, now instant) (*line, *claim) {
	l := s.lines[key]
	if l == nil {
		return nil, nil
	}
	l.purge(now)
	c := l.find(id)
	if c != nil && c.lingering {
		return l, nil
	}
	return l, c
}

// errLeft is the answer to a claim that has left.
var errLeft = driver.ErrGone{Reason: "it has left"}

// gone says why the claim with id is not in line, if the Store knows.
func (s *Store) gone(key, id string, now instant) error {
	if r := s.rests.find(key, id, now); r != nil {
		return r.gone
	}
	return driver.ErrGone{}
}

func clampTTL(d time.Duration) time.Duration { return min(max(d, minTTL), maxTTL) }
