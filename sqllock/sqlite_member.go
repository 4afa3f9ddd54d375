package sqllock

import (
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// membership is what the file remembers of being a member of a quorum.
type membership struct {
	clock, expires, until int64  // no ballot is taken before that, on this clock and on the wall clock
	agreed                string // what the members have agreed on; empty if the file is new
}

// initialise ends the quarantine of a member.
func (t *txn) initialise(take func(r *row) error) error {
	_, refused, err := t.readMember()
	switch {
	case err != nil:
		return err
	case refused != nil:
		return take(refused)
	}
	return t.writeMember(membership{})
}

// judge says why the ballot of an Enter with these arguments is not granted, or returns nil.
func (t *txn) judge(args []any) (refused *row, err error) {
	if len(args) <= withoutBallot {
		return nil, nil
	}
	m, refused, err := t.readMember()
	if err != nil || refused != nil {
		return refused, err
	}
	now, longest := t.now, t.member.MaxTTL.Microseconds()
	if m.agreed == "" || m.clock != now.clock {
		// It is new, or its host was started again and may have lost what it had
		// acknowledged last.
		left := longest
		if m.agreed != "" && t.member.Durable {
			left = max(0, min(longest, m.until-now.wall))
		}
		m.expires = now.at + left
		if err := t.writeMember(membership{expires: m.expires, until: now.wall + left}); err != nil {
			return nil, err
		}
	}
	if left := m.expires - now.at; left > 0 {
		return &row{what: "wait", remains: left}, nil
	}
	var last, inLine int64
	_, err = t.run("floor", args, func(r *row) error {
		last, inLine = r.last, r.ahead
		return nil
	})
	span, ballot, reenter, skew := args[6].(int64), args[10].(int64), args[11].(bool), t.member.Skew.Microseconds()
	switch {
	case err != nil, reenter && (ballot > last || ballot+span-1 == last && inLine == 0):
		return nil, err
	case reenter, ballot <= max(last, now.wall-skew), ballot > max(last+driver.MaxSpan, now.wall+skew):
		return &row{what: "ballot", token: max(last, now.wall)}, nil
	}
	return nil, nil
}

// readMember reads what the file remembers. It refuses a Membership other than that.
func (t *txn) readMember() (m membership, refused *row, err error) {
	var text string
	_, err = t.run("member_read", nil, func(r *row) error {
		text = r.note
		return nil
	})
	if err != nil || text == "" {
		return m, nil, err
	}
	fields := strings.SplitN(text, " ", 5)
	if len(fields) == 5 {
		_, err = fmt.Sscan(strings.Join(fields[1:4], " "), &m.clock, &m.expires, &m.until)
	}
	if len(fields) != 5 || fields[0] != "1" || err != nil {
		return m, &row{what: "damaged", note: t.names.prefix + "meta"}, nil
	}
	if m.agreed = fields[4]; m.agreed != t.member.String() {
		return m, &row{what: "other", note: m.agreed}, nil
	}
	return m, nil, nil
}

// writeMember remembers that ballots are taken when m ends.
func (t *txn) writeMember(m membership) error {
	text := fmt.Sprintf("1 %d %d %d %s", t.now.clock, m.expires, m.until, t.member)
	_, err := t.run("member_write", []any{text}, func(*row) error { return nil })
	return err
}
