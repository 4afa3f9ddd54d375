package redislock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// A card is what a claim tells of itself once and for all, as script/record.lua
// describes it.
type card struct {
	capacity, weight, span int64
	channel, owner, note   string
}

var errCard = errors.New("the card of a claim is damaged")

// writeClaim writes what a record of form C has of a claim, from its lease on.
func writeClaim(c *driver.Claim, channel string) string {
	var room [256]byte // on the stack; most claims fit
	return string(appendSpan(appendLease(room[:0], c.TTL), c, channel))
}

// writeSpan writes the span, id and card of a claim.
func writeSpan(c *driver.Claim, channel string) string {
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

func parseCard(s string) (c card, err error) {
	var lengths [2]int64
	for _, n := range [...]*int64{&c.capacity, &c.weight, &c.span, &lengths[0], &lengths[1]} {
		head, rest, ok := strings.Cut(s, " ")
		if !ok {
			return c, errCard
		}
		if *n, err = strconv.ParseInt(head, 10, 64); err != nil || *n < 0 {
			return c, errCard
		}
		s = rest
	}
	if lengths[0] > int64(len(s)) || lengths[1] > int64(len(s))-lengths[0] {
		return c, errCard
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
	card    card
}

func parseEntry(s string) (e entry, err error) {
	if len(s) < 55 {
		return e, errCard
	}
	if e.token, err = strconv.ParseInt(s[:19], 10, 64); err != nil {
		return e, errCard
	}
	if e.since, err = parseMicros(s[19:35]); err != nil {
		return e, err
	}
	e.granted = s[35] == 'g'
	mark, err := strconv.Atoi(s[52:55])
	if err != nil || mark < 0 || 55+mark > len(s) {
		return e, errCard
	}
	e.card, err = parseCard(s[55+mark:])
	return e, err
}

func parseMicros(s string) (time.Time, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}, errCard
	}
	return time.UnixMicro(n), nil
}

// check refuses what the core never sends. A lease that is not above zero would
// make Redis delete the lock's record.
func check(c *driver.Claim, m *driver.Membership) error {
	var err error
	longest := maxTTL
	if m != nil {
		longest = m.MaxTTL
	}
	switch {
	case c.Key == "" || len(c.Key) > driver.MaxKey:
		err = fmt.Errorf("redis: a key has 1 to %d bytes, not %d", driver.MaxKey, len(c.Key))
	case c.ID == "" || len(c.ID) > driver.MaxOwner:
		err = fmt.Errorf("redis: the claim on %q needs an id of 1 to %d bytes", c.Key, driver.MaxOwner)
	case len(c.Owner) > driver.MaxOwner || len(c.Note) > driver.MaxNote:
		err = fmt.Errorf("redis: owner and note of the claim on %q have at most %d and %d bytes", c.Key, driver.MaxOwner, driver.MaxNote)
	case c.Capacity < 1 || c.Capacity > driver.RW || c.Weight < 1 || c.Weight > c.Capacity:
		err = fmt.Errorf("redis: a claim on %q cannot have weight %d of %d", c.Key, c.Weight, c.Capacity)
	case c.TTL < minTTL || c.TTL > longest:
		err = fmt.Errorf("redis: the lease on %q must last %v to %v, not %v", c.Key, minTTL, longest, c.TTL)
	case c.Span < 1 || c.Span > driver.MaxSpan:
		err = fmt.Errorf("redis: a claim on %q reserves 1 to %d tokens, not %d", c.Key, driver.MaxSpan, c.Span)
	case c.Ballot != 0 && m == nil:
		return errNoMember
	case c.Ballot < 0:
		err = fmt.Errorf("redis: the ballot %d on %q is no token", c.Ballot, c.Key)
	default:
		return nil
	}
	return &driver.PermanentError{Err: err}
}

func clampTTL(d time.Duration) time.Duration { return min(max(d, minTTL), maxTTL) }

// micros writes a duration for a script.
func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
