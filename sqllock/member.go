package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

var _ driver.Member = (*Backend)(nil)

// voter is a store that takes ballots, as the node of a quorum does.
type voter interface {
	// vote is enter of a claim with a ballot; again if it re-enters.
	vote(ctx context.Context, c *driver.Claim, m *driver.Membership, again bool) (driver.Ticket, effects, error)
	// initialise ends the quarantine.
	initialise(ctx context.Context, m *driver.Membership) error
}

// join makes b a member of a quorum.
func (b *Backend) join(m driver.Membership) {
	m, err := m.Settled()
	b.member = &m
	b.info.Ballot, b.info.MaxTTL = true, m.MaxTTL
	if _, ok := b.store.(voter); !ok && b.bad == nil {
		b.bad = fmt.Errorf("%s: it cannot be a member of a quorum: of SQL databases, SQLite and PostgreSQL can", b.name)
	}
	if err != nil && b.bad == nil {
		b.bad = fmt.Errorf("%s: %w", b.name, err)
	}
}

// Reenter puts back a claim that the database has lost, in one short transaction, as
// driver.Member says.
func (b *Backend) Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := b.check(&c); err != nil {
		return driver.Ticket{}, &driver.PermanentError{Err: err}
	}
	if b.member == nil || c.Ballot == 0 {
		return driver.Ticket{}, &driver.PermanentError{Err: fmt.Errorf("%s: a claim re-enters a member, with the ballot that it has", b.name)}
	}
	return b.enter(ctx, c, true)
}

// Initialise ends the quarantine of a member.
func (b *Backend) Initialise(ctx context.Context) error {
	if b.bad == nil && b.member == nil {
		return &driver.PermanentError{Err: fmt.Errorf("%s: it is no member: open it with Options.Member", b.name)}
	}
	return b.call(ctx, func(ctx context.Context) (effects, error) {
		return effects{}, b.store.(voter).initialise(ctx, b.member)
	})
}

func (s *sqlite) vote(ctx context.Context, c *driver.Claim, m *driver.Membership, again bool) (driver.Ticket, effects, error) {
	var ticket driver.Ticket
	var refusal error
	e, err := s.transact(ctx, "enter the line of", c.Key, func(t *txn) (err error) {
		t.vote = &vote{m, again}
		ticket, refusal, err = t.enter(c)
		return err
	})
	if err == nil {
		err = refusal
	}
	if err != nil {
		return driver.Ticket{}, e, err
	}
	return ticket, e.and(s.sweepSometimes(ctx)), nil
}

func (s *sqlite) initialise(ctx context.Context, m *driver.Membership) error {
	var refusal error
	_, err := s.transact(ctx, "initialise", "", func(t *txn) error {
		_, _, agreed, known, err := t.readMember()
		if err != nil {
			return err
		}
		if refusal = agrees(m, agreed, known); refusal != nil {
			return nil
		}
		return t.writeMember(0, 0, m)
	})
	return errors.Join(err, refusal)
}

// vote is how the ballot of a transaction is judged.
type vote struct {
	*driver.Membership
	again bool
}

// longest is what a lease on another clock may last at most.
func (v *vote) longest() int64 {
	if v == nil {
		return 0
	}
	return v.MaxTTL.Microseconds()
}

// judge answers why the ballot of c is not granted on a line; nil if it is.
func (t *txn) judge(c *driver.Claim, v *summary) (refusal, err error) {
	m := t.vote
	clock, ready, agreed, known, err := t.readMember()
	if err != nil {
		return nil, err
	}
	if refusal := agrees(m.Membership, agreed, known); refusal != nil {
		return refusal, nil
	}
	if !known || clock != t.now.clock {
		// It is new, or its host was started again and may have lost what it had
		// acknowledged last.
		if l := t.now.lasting(m.MaxTTL); !known || !m.Durable {
			ready = l
		}
		left := ready.left(t.now)
		ready = t.now.lasting(max(left, 0))
		if err := t.writeMember(ready.expires, ready.until, m.Membership); err != nil {
			return nil, err
		}
	}
	if left := ready.left(t.now); left > 0 {
		return &driver.QuarantineError{Left: left}, nil
	}
	wall, skew := t.now.wall, m.Skew.Microseconds()
	low := driver.ErrBallot{Last: max(v.last, wall)}
	switch {
	case m.again && (c.Ballot > v.last || c.Ballot+c.Span-1 == v.last && v.n == 0):
		return nil, nil
	case m.again, c.Ballot <= max(v.last, wall-skew), c.Ballot > max(v.last+driver.MaxSpan, wall+skew):
		return low, nil
	}
	return nil, nil
}

// readMember reads since when the file is a member, on which clock, and what was
// agreed on.
func (t *txn) readMember() (clock int64, ready lease, agreed string, known bool, err error) {
	var text string
	err = t.rows(func(r *sql.Rows) error { return r.Scan(&text) }, t.statements.memberRead)
	if err != nil || text == "" {
		return 0, ready, "", false, err
	}
	fields := strings.SplitN(text, " ", 5)
	if len(fields) == 5 {
		_, err = fmt.Sscan(strings.Join(fields[1:4], " "), &clock, &ready.expires, &ready.until)
	}
	if len(fields) != 5 || fields[0] != "1" || err != nil {
		return 0, ready, "", false, permanent(fmt.Errorf("sqlite: what the table %smeta says of the member is damaged: delete its row 'member'", t.names.prefix))
	}
	ready.clock, ready.ttl = clock, t.vote.longest()
	return clock, ready, fields[4], true, nil
}

func (t *txn) writeMember(expires, until int64, m *driver.Membership) error {
	return t.exec(t.statements.memberWrite, fmt.Sprintf("1 %d %d %d %s", t.now.clock, expires, until, m))
}

// agrees refuses a Membership that is not the one that the file remembers.
func agrees(m *driver.Membership, agreed string, known bool) error {
	if !known || agreed == m.String() {
		return nil
	}
	return permanent(fmt.Errorf("sqlite: this file is a member of a quorum with %s: open it with the same driver.Membership everywhere", agreed))
}
