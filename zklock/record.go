package zklock

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/escape"
)

// format is the version of everything that is written. A node of another version
// is refused, never guessed at.
const format = 1

// card is what a claim's node holds beside what its name says.
type card struct {
	Format  int    `json:"v"`
	Owner   string `json:"owner,omitempty"`
	Note    string `json:"note,omitempty"`
	Span    int64  `json:"span"`
	TTL     int64  `json:"ttl"`             // ms, as granted
	AtOnce  bool   `json:"now,omitempty"`   // it was granted as it joined
	Granted int64  `json:"since,omitempty"` // otherwise: ms since 1970 by the server's clock, once it has said so
}

// write writes c as json.Marshal does. A card is written with each grant, when all that is not
// in a cache is slow: the package would take a hundredth of a free lock's time.
func (c *card) write() []byte {
	b := make([]byte, 0, 96+len(c.Owner)+len(c.Note))
	b = strconv.AppendInt(append(b, `{"v":`...), int64(c.Format), 10)
	if c.Owner != "" {
		b = escape.AppendJSON(append(b, `,"owner":`...), c.Owner)
	}
	if c.Note != "" {
		b = escape.AppendJSON(append(b, `,"note":`...), c.Note)
	}
	b = strconv.AppendInt(append(b, `,"span":`...), c.Span, 10)
	b = strconv.AppendInt(append(b, `,"ttl":`...), c.TTL, 10)
	if c.AtOnce {
		b = append(b, `,"now":true`...)
	}
	if c.Granted != 0 {
		b = strconv.AppendInt(append(b, `,"since":`...), c.Granted, 10)
	}
	return append(b, '}')
}

// markRecord is what the node m holds.
type markRecord struct {
	Format int    `json:"v"`
	ID     string `json:"id"` // of the claim that wrote it
	Mark   []byte `json:"mark"`
}

// brokenRecord is why a claim was ended.
type brokenRecord struct {
	Format int    `json:"v"`
	Reason string `json:"reason"`
	TTL    int64  `json:"ttl"` // ms from its making on for which somebody may ask
}

func write(record any) []byte {
	b, err := json.Marshal(record)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

func read[T card | markRecord | brokenRecord](path string, data []byte) (T, error) {
	var r T
	var v struct {
		Format int `json:"v"`
	}
	if json.Unmarshal(data, &v) != nil || v.Format != format || json.Unmarshal(data, &r) != nil {
		return r, otherVersion(path)
	}
	if c, ok := any(r).(card); ok && (c.Span < 1 || c.Span > driver.MaxSpan || c.TTL < 0 || c.TTL > int64(math.MaxInt64/time.Millisecond)) {
		return r, otherVersion(path)
	}
	return r, nil
}

func otherVersion(path string) error {
	return &driver.PermanentError{Err: fmt.Errorf("zookeeper: the node %q is of another version of fencelock, or of another program: "+
		"use one version for all programs that share the prefix, and nothing else below it", path)}
}

func millis(ms int64) time.Time { return time.UnixMilli(ms) }
