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
func (t *txn) initialise() error {
	_, refused, err := t.readMember()
	switch {
	case err != nil:
		return err
	case refused != nil:
		return t.take(refused)
	}
	return t.writeMember(membership{})
}

// withoutBallot is how many arguments an Enter without a ballot has.
const withoutBallot = 10

// judge says why the ballot of an Enter with these arguments is not granted, or returns nil.
func (t *txn) judge(args []any) (refused *row, err error) {
	if len(args) <= withoutBallot {
		return nil, nil
	}
	m, refused, err := t.readMember()
	if err != nil || refused != nil {
		return refused, err
	}
	left, err := t.quarantine(m)
	if err != nil || left > 0 {
		return &row{what: "wait", remains: left}, err
	}
	var last, inLine int64
	_, err = t.query("floor", args, func(r *row) error {
		last, inLine = r.last, r.ahead
		return nil
	})
	span, ballot, reenter := args[6].(int64), args[10].(int64), args[11].(bool)
	now, skew := t.now.wall, t.member.Skew.Microseconds()
	switch {
	case err != nil, reenter && (ballot > last || ballot+span-1 == last && inLine == 0):
		return nil, err
	case reenter, ballot <= max(last, now-skew), ballot > max(last+driver.MaxSpan, now+skew):
		return &row{what: "ballot", token: max(last, now)}, nil
	}
	return nil, nil
}

// quarantine returns how long no ballot is taken. It begins for a file that is new, or whose
// host was started again and may have lost what it had acknowledged last.
func (t *txn) quarantine(m membership) (left int64, err error) {
	if m.agreed != "" && m.clock == t.now.clock {
		return m.expires - t.now.at, nil
	}
	longest := t.member.MaxTTL.Microseconds()
	left = longest
	if m.agreed != "" && t.member.Durable {
		left = max(0, min(longest, m.until-t.now.wall))
	}
	return left, t.writeMember(membership{expires: t.now.at + left, until: t.now.wall + left})
}

// readMember reads what the file remembers. It refuses a Membership other than that.
func (t *txn) readMember() (m membership, refused *row, err error) {
	var text string
	_, err = t.query("member_read", nil, func(r *row) error {
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
	_, err := t.query("member_write", []any{text}, func(*row) error { return nil })
	return err
}
