package zklock

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/fencelock/fencelock/driver"
)

// format is the version of everything that is written. A node of another version
// is refused, never guessed at.
const format = 1

// formatData is what a node holds that says nothing more.
var formatData = []byte{'0' + format}

// claimRecord is what a claim's node holds beside what its name says.
type claimRecord struct {
	Format int    `json:"v"`
	Owner  string `json:"owner,omitempty"`
	Note   string `json:"note,omitempty"`
	Span   int64  `json:"span"`
	TTL    int64  `json:"ttl"`            // ms, as granted
	AtOnce bool   `json:"now,omitempty"`  // it was granted as it joined
	Held   int64  `json:"held,omitempty"` // otherwise: for how many ms it held when this was written
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
}

func write(record any) []byte {
	b, err := json.Marshal(record)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

func read[T claimRecord | markRecord | brokenRecord](path string, data []byte) (T, error) {
	var r T
	var v struct {
		Format int `json:"v"`
	}
	if json.Unmarshal(data, &v) != nil || v.Format != format || json.Unmarshal(data, &r) != nil {
		return r, otherVersion(path)
	}
	c, ok := any(r).(claimRecord)
	if ok && (c.Span < 1 || c.Span > driver.MaxSpan || c.TTL < 0 || c.TTL > math.MaxInt64/1_000_000) {
		return r, otherVersion(path)
	}
	return r, nil
}

func otherVersion(path string) error {
	return &driver.PermanentError{Err: fmt.Errorf("zookeeper: the node %q is of another version of fencelock, or of "+
		"another program: use one version for all programs that share the prefix, and nothing else below it", path)}
}
