package swaplock

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/line"
)

// format is the format of the documents that this code writes. It reads no newer one.
const format = 1

type text = driverutil.Text

// document is the line of a key as it is written down.
type document struct {
	Format     int         `json:"format"`
	Claims     []claim     `json:"claims,omitempty"`
	Tombstones []tombstone `json:"tombstones,omitempty"`
}

// claim is one place in line, as it is written down.
type claim struct {
	ID        text                `json:"id"`
	Owner     string              `json:"owner,omitempty"`
	Note      string              `json:"note,omitempty"`
	Trace     string              `json:"trace,omitempty"`
	LockDelay driverutil.Duration `json:"lock_delay,omitempty"`
	Token     int64               `json:"token,omitempty"`    // not of an arrival: its store knows
	Span      int64               `json:"span,omitempty"`     // if not 1
	Capacity  int64               `json:"capacity,omitempty"` // if not driver.RW
	Weight    int64               `json:"weight,omitempty"`   // if not the capacity
	Named     bool                `json:"named,omitempty"`
	Granted   bool                `json:"granted,omitempty"`
	Lingering bool                `json:"lingering,omitempty"`
	Noticed   bool                `json:"noticed,omitempty"` // it ends at Until, whatever renews it
	Since     time.Time           `json:"since,omitzero"`    // not of an arrival: its store knows
	TTL       driverutil.Duration `json:"ttl"`
	WaitTTL   driverutil.Duration `json:"wait_ttl,omitempty"` // of an arrival
	After     int64               `json:"after,omitempty"`    // of a message, as in driver.Claim
	Until     time.Time           `json:"until,omitzero"`     // of a claim whose lease is in the document
	Lent      bool                `json:"lent,omitempty"`     // the lease is in a record
	Mark      text                `json:"mark,omitempty"`     // as of the grant
	Node      string              `json:"node,omitempty"`     // Traits.Node of its process
}

// tombstone keeps a claim out.
type tombstone struct {
	ID     text      `json:"id"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
	Broken bool      `json:"broken,omitempty"`
	Left   bool      `json:"left,omitempty"`
}

// parse reads a document.
func parse(key string, text []byte) (d document, err error) {
	if len(text) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, driver.Permanent(fmt.Errorf("the document of %.80q cannot be read: %w", key, err))
	}
	if d.Format != format {
		return d, driver.Permanent(fmt.Errorf(
			"the document of %.80q has format %d and this release reads format %d: use the newer release",
			key, d.Format, format))

	}
	return d, nil
}

// claim returns the claim in line that c describes, but for the end of its lease.
func (c *claim) claim(key string) *line.Claim {
	got := &line.Claim{
		Claim: driver.Claim{
			Key: key, ID: string(c.ID), Owner: c.Owner, Note: c.Note, Trace: c.Trace,
			LockDelay: time.Duration(c.LockDelay), Capacity: c.Capacity, Weight: c.Weight,
			TTL: time.Duration(c.TTL), WaitTTL: time.Duration(c.WaitTTL), Span: max(c.Span, 1), Named: c.Named,
			After: c.After,
		},
		Token: c.Token, Since: c.Since, Mark: string(c.Mark), Granted: c.Granted,
		Lingering: c.Lingering, Noticed: c.Noticed, Node: c.Node,
	}
	if got.Capacity == 0 {
		got.Capacity = driver.RW
	}
	if got.Weight == 0 {
		got.Weight = got.Capacity
	}
	return got
}

// describe writes down what does not change while c waits.
func describe(c *driver.Claim, node string) claim {
	d := claim{
		ID: text(c.ID), Owner: c.Owner, Note: c.Note, Trace: c.Trace, LockDelay: driverutil.Duration(c.LockDelay),
		Named: c.Named, TTL: driverutil.Duration(c.TTL), WaitTTL: driverutil.Duration(c.WaitTTL), Node: node,
	}
	if c.Span != 1 {
		d.Span = c.Span
	}
	if c.Capacity != driver.RW {
		d.Capacity = c.Capacity
	}
	if c.Weight != c.Capacity {
		d.Weight = c.Weight
	}
	return d
}

func sinceEpoch(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Duration(t.UnixNano())
}

func fromEpoch(d time.Duration) time.Time { return time.Unix(0, int64(d)).UTC() }
