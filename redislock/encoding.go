package redislock

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

// maxToken is the largest token: Lua counts to there without loss.
const maxToken = 1 << 53

// claimTail writes the end of a claim, as keys.go says: the channel of its process, its lock-delay, and what people
// read.
func claimTail(c *driver.Claim, process string) string {
	delay := strconv.FormatInt(c.LockDelay.Microseconds(), 10)
	return process + " " + delay + " " + strconv.Itoa(len(c.Owner)) + " " + c.Owner + " " +
		strconv.Itoa(len(c.Trace)) + " " + c.Trace + " " + c.Note
}

// parseClaim reads a claim as a lock keeps it. It reports whether s is one.
func parseClaim(s string, now time.Time) (c driver.Standing, ok bool) {
	f := fields{rest: s}
	c.Left = min(max(f.time().Sub(now), -2*maxTTL), 2*maxTTL)
	c.Token, c.Since = f.number(" "), f.time()
	c.Span, c.Weight = f.number(" "), f.number(" ")
	f.until(" ") // its channel
	c.LockDelay = f.duration()
	c.Owner = f.take(f.number(" "))
	f.until(" ")
	c.Trace = f.take(f.number(" "))
	f.until(" ")
	c.Note = f.rest
	return c, !f.bad && sane(c.Token, c.Span) && c.Weight >= 1
}

// fields reads a text part by part. After a part that is not what was expected, bad is set.
type fields struct {
	rest string
	bad  bool
}

// until reads up to the next end.
func (f *fields) until(end string) string {
	text, rest, ok := strings.Cut(f.rest, end)
	f.rest, f.bad = rest, f.bad || !ok
	return text
}

// number reads a number that is not negative, and the end behind it.
func (f *fields) number(end string) int64 {
	n, err := strconv.ParseInt(f.until(end), 10, 64)
	if err != nil || n < 0 {
		f.bad = true
		return 0
	}
	return n
}

func (f *fields) time() time.Time { return time.UnixMicro(f.number(" ")) }

// duration reads how long something lasts. Nothing that concerns a lease is longer than two of them.
func (f *fields) duration() time.Duration {
	return time.Duration(min(f.number(" "), 2*maxTTL.Microseconds())) * time.Microsecond
}

// prefixed reads a text with its length in front; "" if bad.
func (f *fields) prefixed() string { return f.take(f.number(":")) }

// take reads so many bytes.
func (f *fields) take(n int64) string {
	if n < 0 || n > int64(len(f.rest)) {
		f.bad = true
		return ""
	}
	text := f.rest[:n]
	f.rest = f.rest[n:]
	return text
}

// busy reads a time, and the first claim of a line as it was then.
func (f *fields) busy(ahead int) *driver.BusyError {
	now := f.time()
	first, ok := parseClaim(f.rest, now)
	if !ok {
		first = driver.Standing{} // gone by now, or damaged: it is for people only
	}
	return &driver.BusyError{Standing: first, Ahead: ahead}
}

// parseTicket reads an answer that begins with 'g' or 'w', from enter, await or adopt, to claim c. soonest is
// when something in line may end, counted from the answer.
func parseTicket(c driver.Claim, answer any) (t driver.Ticket, soonest time.Duration, ok bool) {
	s, _ := answer.(string)
	f := fields{rest: s}
	kind := f.take(1)
	t = driver.Ticket{Claim: c, Token: f.number(" ")}
	t.Span, t.Left = f.number(" "), f.duration()
	switch kind {
	case "g":
		t.Granted, t.Mark = true, f.rest
	case "w":
		t.Ahead, soonest = int(min(f.number(" "), math.MaxInt32)), f.duration()
		t.Head = f.busy(t.Ahead)
	default:
		return t, 0, false
	}
	return t, soonest, !f.bad && sane(t.Token, t.Span)
}

// sane reports whether tokens from first on, as many as span, are ones that a lock draws.
func sane(first, span int64) bool {
	return span >= 1 && span <= limit.Span && first >= 1 && first < maxToken
}

func clampTTL(d time.Duration) time.Duration { return min(max(d, minTTL), maxTTL) }

// digit writes what is true or not for a script.
func digit(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
