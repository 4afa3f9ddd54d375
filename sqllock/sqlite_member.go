package sqllock

import (
	"context"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// membership is what the file remembers of being a member of a quorum.
type membership struct {
	ready  lease  // no ballot is taken before it ends
	agreed string // what the members have agreed on; empty if the file is new
}

// initialise ends the quarantine of a member.
func (s *sqlite) initialise(ctx context.Context) error {
	_, err := s.transact(ctx, false, "initialise", "", func(t *txn) error {
		if _, err := t.readMember(); err != nil {
			return err
		}
		return t.writeMember(lease{})
	})
	return err
}

// judge answers why the ballot of c is not granted on a line; nil if it is.
func (t *txn) judge(c *driver.Claim, v *summary, reenter bool) error {
	m, err := t.readMember()
	if err != nil {
		return err
	}
	if m.agreed == "" || m.ready.clock != t.now.clock {
		// It is new, or its host was started again and may have lost what it had
		// acknowledged last.
		left := m.ready.left(t.now)
		if m.agreed == "" || !t.member.Durable {
			left = t.member.MaxTTL
		}
		m.ready = t.now.lasting(max(left, 0))
		if err := t.writeMember(m.ready); err != nil {
			return err
		}
	}
	if left := m.ready.left(t.now); left > 0 {
		return &driver.QuarantineError{Left: left}
	}
	wall, skew := t.now.wall, t.member.Skew.Microseconds()
	switch {
	case reenter && (c.Ballot > v.last || c.Ballot+c.Span-1 == v.last && v.n == 0):
		return nil
	case reenter, c.Ballot <= max(v.last, wall-skew), c.Ballot > max(v.last+driver.MaxSpan, wall+skew):
		return driver.ErrBallot{Last: max(v.last, wall)}
	}
	return nil
}

// readMember reads what the file remembers. It refuses a Membership other than that.
func (t *txn) readMember() (m membership, err error) {
	var text string
	err = t.query("", func(r *row) error {
		text = r.note
		return nil
	}, "member_read")
	if err != nil || text == "" {
		return m, err
	}
	fields := strings.SplitN(text, " ", 5)
	if len(fields) == 5 {
		_, err = fmt.Sscan(strings.Join(fields[1:4], " "), &m.ready.clock, &m.ready.expires, &m.ready.until)
	}
	if len(fields) != 5 || fields[0] != "1" || err != nil {
		return m, damagedMember(t.name, t.names.prefix+"meta")
	}
	m.ready.ttl, m.agreed = t.member.MaxTTL.Microseconds(), fields[4]
	if m.agreed != t.member.String() {
		return m, otherMember(t.name, m.agreed)
	}
	return m, nil
}

// writeMember remembers that ballots are taken when ready has ended.
func (t *txn) writeMember(ready lease) error {
	_, err := t.exec("member_write", fmt.Sprintf("1 %d %d %d %s", t.now.clock, ready.expires, ready.until, t.member))
	return err
}
