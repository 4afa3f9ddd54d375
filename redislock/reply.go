package redislock

import (
	"math"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// reply reads what a script answered, part by part. After the first part that is
// not what was expected all are zero, and bad is set.
type reply struct {
	parts []any
	bad   bool
}

func (r *reply) text() string {
	if len(r.parts) == 0 {
		r.bad = true
		return ""
	}
	part := r.parts[0]
	r.parts = r.parts[1:]
	switch v := part.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	r.bad = true
	return ""
}

func (r *reply) number() int64 {
	n, err := strconv.ParseInt(r.text(), 10, 64)
	if err != nil {
		r.bad = true
	}
	return n
}

// duration reads µs. Nothing that concerns a lease is longer than two of them.
func (r *reply) duration() time.Duration {
	most := 2 * maxTTL.Microseconds()
	return time.Duration(min(max(r.number(), -most), most)) * time.Microsecond
}

// busy reads the first claim of a line and how long it lasts.
func (r *reply) busy(ahead int) *driver.BusyError {
	c, ok := parseClaim(r.text())
	left := r.duration()
	if !ok {
		// Gone by now, or damaged: it is for people only.
		return &driver.BusyError{Ahead: ahead}
	}
	holder := driver.Claim{Owner: c.owner, Note: c.note}
	first := driver.Standing{Claim: holder, Token: c.token, Since: c.since, Left: left}
	return &driver.BusyError{Standing: first, Ahead: ahead}
}

// parseTicket reads an answer that begins with 'g' or 'w', from enter or await, to
// claim c. soonest is when something in line may end, counted from the answer.
func parseTicket(c driver.Claim, answer any) (t driver.Ticket, soonest time.Duration, ok bool) {
	t = driver.Ticket{Claim: c, Left: c.TTL}
	if s, is := answer.(string); is {
		if len(s) < 20 || s[0] != 'g' {
			return t, 0, false
		}
		n, err := strconv.ParseInt(s[1:20], 10, 64)
		t.Token, t.Granted, t.Mark = n, true, driver.Mark(s[20:])
		return t, 0, err == nil && sane(&t)
	}
	parts, is := answer.([]any)
	if !is {
		return t, 0, false
	}
	r := reply{parts: parts}
	kind := r.text()
	t.Token = r.number()
	t.Left = r.duration()
	t.Span = r.number()
	switch kind {
	case "g":
		t.Granted = true
		t.Mark = driver.Mark(r.text())
	case "w":
		t.Ahead = int(r.number())
		soonest = r.duration()
		t.Head = r.busy(t.Ahead)
	default:
		return t, 0, false
	}
	return t, soonest, !r.bad && sane(&t)
}

// sane refuses what no script of ours answers: it would be believed.
func sane(t *driver.Ticket) bool {
	return t.Span >= 1 && t.Span <= driver.MaxSpan && t.Token >= 1 && t.Token-1 <= math.MaxInt64-t.Span && t.Ahead >= 0
}
