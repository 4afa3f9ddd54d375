package redislock

import (
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// encodeClaim writes what the record of a held lock has of a claim, from its span on, as
// script/record.lua says.
func encodeClaim(c *driver.Claim, channel string) string {
	var room [256]byte // on the stack; most claims fit
	b := appendPadded(room[:0], c.Span-1, 5)
	b = append(b, ' ')
	b = appendLease(b, c.TTL)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(c.ID)), 10)
	b = append(b, ':')
	b = append(b, c.ID...)
	for _, n := range [...]int64{c.Capacity, c.Weight, int64(len(channel)), int64(len(c.Owner))} {
		b = append(b, ' ')
		b = strconv.AppendInt(b, n, 10)
	}
	for _, text := range [...]string{channel, c.Owner, c.Note} {
		b = append(b, ' ')
		b = append(b, text...)
	}
	return string(b)
}

// encodeLease writes a lease as seconds(8) '.' µs(6).
func encodeLease(d time.Duration) string { return string(appendLease(nil, d)) }

func appendLease(b []byte, d time.Duration) []byte {
	b = appendPadded(b, int64(d/time.Second), 8)
	b = append(b, '.')
	return appendPadded(b, (d % time.Second).Microseconds(), 6)
}

// appendPadded writes n ≥ 0 with leading zeros.
func appendPadded(b []byte, n int64, width int) []byte {
	at := len(b)
	for range width {
		b = append(b, '0')
	}
	for i := len(b) - 1; i >= at && n > 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return b
}

// claimText is a claim as the hash of a line keeps it.
type claimText struct {
	token                  int64
	since                  time.Time
	granted                bool
	span, capacity, weight int64
	owner, note            string
}

// parseClaim reads what the script writes as claim_text. It reports whether s is that.
func parseClaim(s string) (c claimText, ok bool) {
	f := fields{rest: s}
	c.token, c.since = f.number(" "), time.UnixMicro(f.number(" "))
	c.granted = f.until(" ") == "granted"
	f.number(" ") // its arrival
	c.span = f.number(" ") + 1
	f.take(f.number(" ")) // the mark at the grant
	c.capacity, c.weight = f.number(" "), f.number(" ")
	channel, owner := f.number(" "), f.number(" ")
	f.take(channel + 1) // and a space
	c.owner = f.take(owner)
	f.take(1)
	c.note = f.rest
	return c, !f.bad
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

// prefixed writes an ID with its length in front, so that no ID is the beginning of
// another.
func prefixed(id string) string { return strconv.Itoa(len(id)) + ":" + id }

func clampTTL(d time.Duration) time.Duration { return min(max(d, minTTL), maxTTL) }

// recordTTL is how many ms the record of a claim stays. It is a day after the clock has
// overtaken the tokens of the longest span.
func recordTTL(ttl time.Duration) int64 { return (ttl + 24*time.Hour + time.Second).Milliseconds() }

// micros writes a duration for a script.
func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
