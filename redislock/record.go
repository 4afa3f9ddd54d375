package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// claim is one claim of a line, in either of the forms that script/record.lua
// describes.
type claim struct {
	id      string
	lingers bool
	ends    time.Time
	entry   entry
}

var errRecord = errors.New("FENCELOCK DAMAGED")

// parseLine reads what the script read answered.
func parseLine(key string, answer any) (driver.Line, error) {
	line := driver.Line{Key: key}
	parts, _ := answer.([]any)
	r := reply{parts: parts}
	now, record := time.UnixMicro(r.number()), r.text()
	if r.bad || len(parts) != 4 {
		return line, badAnswer(reading, key, answer)
	}
	if record == "" {
		return line, nil
	}
	claims, err := parseRecord(&line, record)
	if err == nil && record[1] == 'L' {
		claims, err = parseClaims(parts[2], parts[3])
	}
	if err != nil {
		return driver.Line{Key: key}, failed(context.Background(), reading, key, err)
	}
	var before int64
	for _, c := range claims {
		left := c.ends.Sub(now)
		if left <= 0 {
			continue
		}
		details := &c.entry.details
		s := driver.Standing{
			ID:        driver.ShortID(c.id),
			Owner:     details.owner,
			Note:      details.note,
			Capacity:  details.capacity,
			Weight:    details.weight,
			Token:     c.entry.token,
			Span:      details.span,
			Granted:   details.weight+before <= details.capacity,
			Lingering: c.lingers,
			Since:     c.entry.since,
			Left:      left,
		}
		if s.Granted && !c.entry.granted {
			// It became so when a lease before it ended, and no step was taken since.
			s.Since = now
		}
		before += details.weight
		line.Claims = append(line.Claims, s)
	}
	return line, nil
}

// parseRecord reads the record into line, and returns its claim if it is there.
func parseRecord(line *driver.Line, record string) ([]claim, error) {
	if record[0] != '1' {
		return nil, fmt.Errorf("FENCELOCK VERSION %.8q", record)
	}
	switch {
	case len(record) < 56:
		return nil, errRecord
	case record[1] == 'F':
		return nil, parseFree(line, record)
	case record[1] == 'C':
		c, err := parseSingle(line, record)
		return []claim{c}, err
	case record[1] == 'L':
		d := digits{}
		line.Last = d.read(record[2:21])
		mark, marker := int(d.read(record[21:24])), int(d.read(record[24:28]))
		if d.bad || mark+marker > len(record)-28 {
			return nil, errRecord
		}
		line.Mark = driver.Mark(record[len(record)-mark-marker : len(record)-marker])
		return nil, nil
	}
	return nil, errRecord
}

// parseFree reads a record of form F.
func parseFree(line *driver.Line, record string) error {
	d := digits{}
	if record[50] == '.' {
		line.Last = d.read(record[2:18]) + d.read(record[51:])
	} else if len(record) < 82 {
		d.bad = true
	} else {
		line.Last = d.read(record[56:75])
		mark, marker := int(d.read(record[75:78])), int(d.read(record[78:82]))
		if d.bad || mark+marker != len(record)-82 {
			return errRecord
		}
		line.Mark = driver.Mark(record[82 : 82+mark])
	}
	if d.bad {
		return errRecord
	}
	return nil
}

// parseSingle reads a record of form C.
func parseSingle(line *driver.Line, record string) (c claim, err error) {
	if len(record) < 71 {
		return c, errRecord
	}
	d := digits{}
	start, body := d.read(record[2:18]), record
	lease := d.read(record[51:59])*1_000_000 + d.read(record[59:65])
	token, since := start, start
	switch {
	case record[50] == '.':
		line.Last = start + d.read(record[65:70])
	case record[50] == '+' && len(record) >= 71+62:
		tail := record[len(record)-62:]
		line.Last, token, since = d.read(tail[:19]), d.read(tail[19:38]), d.read(tail[38:54])
		c.lingers = tail[54] == '1'
		mark, marker := int(d.read(tail[55:58])), int(d.read(tail[58:]))
		if d.bad || mark+marker > len(record)-62-71 {
			return c, errRecord
		}
		body = record[:len(record)-62-mark-marker]
		line.Mark = driver.Mark(record[len(body) : len(body)+mark])
	default:
		return c, errRecord
	}
	id, rest, ok := cutPrefixed(body[71:])
	c.id = id
	c.ends = time.UnixMicro(start + lease)
	c.entry = entry{token: token, since: time.UnixMicro(since), granted: true}
	c.entry.details, err = parseDetails(rest)
	if err != nil || !ok || d.bad {
		return c, errRecord
	}
	return c, nil
}

// digits reads numbers. After one that is none, bad is set.
type digits struct{ bad bool }

func (d *digits) read(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		d.bad = true
	}
	return n
}

// parseClaims reads the claims of a long line, in order of arrival.
func parseClaims(order, hash any) ([]claim, error) {
	z, _ := order.([]any)
	h, _ := hash.([]any)
	texts := make(map[string]string, len(h)/2)
	for i := 0; i+1 < len(h); i += 2 {
		field, _ := h[i].(string)
		texts[field], _ = h[i+1].(string)
	}
	ends := make(map[string]time.Time, len(z)/4)
	var ids []string
	for i := 0; i+1 < len(z); i += 2 {
		member, _ := z[i].(string)
		score, _ := z[i+1].(string)
		switch {
		case strings.HasPrefix(member, "o"):
			ids = append(ids, member[1:])
		case strings.HasPrefix(member, "e"):
			us, err := strconv.ParseFloat(score, 64)
			if err != nil {
				return nil, errRecord
			}
			ends[member[1:]] = time.UnixMicro(int64(us))
		}
	}
	claims := make([]claim, 0, len(ids))
	for _, id := range ids {
		e, err := parseEntry(texts["e"+id])
		if err != nil {
			return nil, errRecord
		}
		c := claim{ends: ends[id], entry: e}
		id, c.lingers = strings.CutPrefix(id, "~")
		var ok bool
		if c.id, _, ok = cutPrefixed(id); !ok {
			return nil, errRecord
		}
		claims = append(claims, c)
	}
	return claims, nil
}
