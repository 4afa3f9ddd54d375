package redislock

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// details are what a claim tells of itself once and for all, as script/record.lua
// describes it.
type details struct {
	capacity, weight, span int64
	channel, owner, note   string
}

var errDetails = errors.New("the details of a claim is damaged")

// encodeClaim writes what a record of form C has of a claim, from its lease on.
func encodeClaim(c *driver.Claim, channel string) string {
	var room [256]byte // on the stack; most claims fit
	return string(appendSpan(appendLease(room[:0], c.TTL), c, channel))
}

// encodeSpan writes the span, id and details of a claim.
func encodeSpan(c *driver.Claim, channel string) string {
	var room [256]byte
	return string(appendSpan(room[:0], c, channel))
}

func appendSpan(b []byte, c *driver.Claim, channel string) []byte {
	b = appendPadded(b, c.Span-1, 5)
	b = append(b, ';')
	b = strconv.AppendInt(b, int64(len(c.ID)), 10)
	b = append(b, ':')
	b = append(b, c.ID...)
	for _, n := range [...]int64{c.Capacity, c.Weight, c.Span, int64(len(channel)), int64(len(c.Owner))} {
		b = strconv.AppendInt(b, n, 10)
		b = append(b, ' ')
	}
	b = append(b, channel...)
	b = append(b, c.Owner...)
	return append(b, c.Note...)
}

func encodeLease(d time.Duration) string { return string(appendLease(nil, d)) }

// appendLease writes a lease: 8 digits of seconds, 6 of µs.
func appendLease(b []byte, d time.Duration) []byte {
	b = appendPadded(b, int64(d/time.Second), 8)
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

func parseDetails(s string) (c details, err error) {
	var lengths [2]int64
	for _, n := range [...]*int64{&c.capacity, &c.weight, &c.span, &lengths[0], &lengths[1]} {
		head, rest, ok := strings.Cut(s, " ")
		if !ok {
			return c, errDetails
		}
		if *n, err = strconv.ParseInt(head, 10, 64); err != nil || *n < 0 {
			return c, errDetails
		}
		s = rest
	}
	if lengths[0] > int64(len(s)) || lengths[1] > int64(len(s))-lengths[0] {
		return c, errDetails
	}
	c.channel, s = s[:lengths[0]], s[lengths[0]:]
	c.owner, c.note = s[:lengths[1]], s[lengths[1]:]
	return c, nil
}

// entry is a claim as the hash of a long line holds it.
type entry struct {
	token   int64
	since   time.Time
	granted bool
	details details
}

func parseEntry(s string) (e entry, err error) {
	if len(s) < 55 {
		return e, errDetails
	}
	if e.token, err = strconv.ParseInt(s[:19], 10, 64); err != nil {
		return e, errDetails
	}
	if e.since, err = parseMicros(s[19:35]); err != nil {
		return e, err
	}
	e.granted = s[35] == 'g'
	mark, err := strconv.Atoi(s[52:55])
	if err != nil || mark < 0 || 55+mark > len(s) {
		return e, errDetails
	}
	e.details, err = parseDetails(s[55+mark:])
	return e, err
}

func parseMicros(s string) (time.Time, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}, errDetails
	}
	return time.UnixMicro(n), nil
}

func clampTTL(d time.Duration) time.Duration { return min(max(d, minTTL), maxTTL) }

// recordTTL is how many ms the record of a claim stays. It is a day after the clock has
// overtaken the tokens of the longest span.
func recordTTL(ttl time.Duration) int64 { return (ttl + 24*time.Hour + time.Second).Milliseconds() }

// micros writes a duration for a script.
func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
