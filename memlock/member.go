package memlock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// member is the state of a Store that is a node of a quorum.
type member struct {
	driver.Membership
	invalid     error         // what is wrong with the Membership
	initialised bool          // readyAt is set
	readyAt     time.Duration // the end of the quarantine
}

var _ driver.Member = (*Store)(nil)

// NewMember returns an empty Store that takes ballots, as a node of a quorum
// does. It is for tests of programs that use package quorumlock.
//
// A new member begins with a quarantine, which Initialise ends. A nil Membership
// has the defaults. An invalid one is reported by the first ballot.
func NewMember(m *driver.Membership) *Store {
	if m == nil {
		m = &driver.Membership{}
	}
	s := New()
	settled, err := m.Settled()
	s.member = &member{Membership: settled, invalid: err}
	return s
}

// Reenter puts back a claim that the Store has lost, as driver.Member says.
func (s *Store) Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if c.Ballot == 0 {
		err := errors.New("memory: a claim re-enters with the ballot that it has")
		return driver.Ticket{}, &driver.PermanentError{Err: err}
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
	s.member.initialised, s.member.readyAt = true, 0
	return nil
}

// judge says why the ballot of c may not be granted on q, or returns nil.
func (m *member) judge(q *queue, c *driver.Claim, reenter bool, now instant) error {
	if m.invalid != nil {
		return &driver.PermanentError{Err: m.invalid}
	}
	if !m.initialised {
		m.initialised, m.readyAt = true, now.mono+m.MaxTTL
	}
	if now.mono < m.readyAt {
		return &driver.QuarantineError{Left: m.readyAt - now.mono}
	}
	last, wall, skew := q.lastToken, now.wall.UnixMicro(), m.Skew.Microseconds()
	refused := driver.BallotError{Last: max(last, wall)}
	if reenter {
		// The claim held a majority a moment ago, so no other claim can have one and
		// an old ballot is no danger. It must not be below what this node remembers.
		if c.Ballot > last || c.Ballot+c.Span-1 == last && len(q.claims) == 0 {
			return nil
		}
		return refused
	}
	if c.Ballot <= max(last, wall-skew) || c.Ballot > max(last+driver.MaxSpan, wall+skew) {
		return refused
	}
	return nil
}
