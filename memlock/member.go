package memlock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// member is what a Store remembers of being one.
type member struct {
	driver.Membership
	bad   error         // what is wrong with the Membership
	known bool          // remembers since when
	ready time.Duration // takes ballots from then on
}

var _ driver.Member = (*Store)(nil)

// NewMember returns an empty Store that takes ballots, as the node of a quorum does.
// It is new, so it begins with a quarantine: Initialise ends it. A nil Membership is
// ready for use; what is wrong with one is the answer to the first ballot. It is for
// tests of programs that use package quorumlock.
func NewMember(m *driver.Membership) *Store {
	if m == nil {
		m = &driver.Membership{}
	}
	s := New()
	settled, err := m.Settled()
	s.member = &member{Membership: settled, bad: err}
	return s
}

// Reenter puts back a claim that the Store has lost, as driver.Member says.
func (s *Store) Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if c.Ballot == 0 {
		return driver.Ticket{}, &driver.PermanentError{Err: errors.New("memory: a claim re-enters with the ballot that it has")}
	}
	return s.enter(ctx, c, true)
}

// Initialise ends the quarantine of a member.
func (s *Store) Initialise(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.member == nil {
		return &driver.PermanentError{Err: errors.New("memory: this store is no member")}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.member.known, s.member.ready = true, 0
	return nil
}

// forget is what a loss of data does to a member.
func (m *member) forget() {
	if m != nil {
		m.known = false
	}
}

// judge says whether the ballot of c may be granted on l, which is nil if the key
// has no line. again says that c re-enters.
func (m *member) judge(l *line, c *driver.Claim, again bool, now instant) error {
	if m.bad != nil {
		return &driver.PermanentError{Err: m.bad}
	}
	if !m.known {
		m.known, m.ready = true, now.mono+m.MaxTTL
	}
	if now.mono < m.ready {
		return &driver.QuarantineError{Left: m.ready - now.mono}
	}
	var last int64
	if l != nil {
		last = l.last
	}
	wall, skew := now.wall.UnixMicro(), m.Skew.Microseconds()
	refused := driver.ErrBallot{Last: max(last, wall)}
	if again {
		// It held a majority a moment ago, so no other claim can have one, and a ballot
		// from long ago is no danger. What this node remembers must not be above it.
		if c.Ballot > last || c.Ballot+c.Span-1 == last && (l == nil || l.head == nil) {
			return nil
		}
		return refused
	}
	if c.Ballot <= max(last, wall-skew) || c.Ballot > max(last+driver.MaxSpan, wall+skew) {
		return refused
	}
	return nil
}
