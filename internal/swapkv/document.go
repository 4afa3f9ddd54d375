package swapkv

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/swaplock"
)

// format is the format of the objects that this code writes. It reads no other one.
const format = 2

type text = driverutil.Text

// document is the object of a line.
type document struct {
	Format   int             `json:"format"`
	Key      text            `json:"key"`
	Nonce    string          `json:"nonce"` // a version may be a hash of the content, and must never return
	Last     int64           `json:"last"`
	Mark     text            `json:"mark,omitempty"`
	MarkedBy text            `json:"marked_by,omitempty"`
	standing                 // see there
	Line     json.RawMessage `json:"line,omitempty"` // see package swaplock
}

// standing is the part of a document that the next swap has to know.
type standing struct {
	Swap   int64      `json:"swap"`             // counts them
	Holder text       `json:"holder,omitempty"` // its lease is among Leases
	Leases []leaseRef `json:"leases,omitempty"`
	Done   int64      `json:"done,omitempty"` // the version of the last message that was done
}

// leaseRef is a lease. Its renewals are in an object of its own.
type leaseRef struct {
	ID    text      `json:"id"`
	Lease string    `json:"lease"` // no other one ever gets this name
	Until time.Time `json:"until"` // unless a renewal ends later
}

// seen is a State.Seen: what a swap has to know of a reading.
type seen struct {
	standing
	Version  string             // of the object of the line
	Renewed  map[string]renewal // leases with an object, by Lease
	Ended    []string           // leases that have ended for good
	Messages []message
}

type renewal struct {
	Version string // of the object
	End     time.Time
}

type message struct {
	Name    string
	Version int64
}

func parse(name string, o Object) (d document, err error) {
	if len(o.Value) == 0 { // or an operator has deleted it
		return d, nil
	}
	if err = json.Unmarshal(o.Value, &d); err != nil {
		err = fmt.Errorf("%s is not an object of fencelock: %w: delete it while nobody holds the lock", name, err)
	} else if d.Format != format {
		err = fmt.Errorf("%s has format %d and this release reads format %d: use one release, or delete it while "+
			"nobody holds the lock", name, d.Format, format)
	}
	if err != nil {
		err = driver.Permanent(err)
	}
	return d, err
}

// body writes d. With a line it has size bytes at least.
func (d *document) body(size int) []byte {
	b, _ := json.Marshal(d) // a document of swaplock is JSON
	if len(d.Line) > 0 {
		b = append(b, bytes.Repeat([]byte(" "), max(0, size-len(b)))...)
	}
	return b
}

// of returns the lease of the claim with id, or nil.
func (d *standing) of(id text) *leaseRef {
	if i := slices.IndexFunc(d.Leases, func(r leaseRef) bool { return r.ID == id }); i >= 0 {
		return &d.Leases[i]
	}
	return nil
}

// alive returns the lease of the claim with id, or nil if it was ended for good.
func (v *seen) alive(id text) *leaseRef {
	if ref := v.of(id); ref != nil && !slices.Contains(v.Ended, ref.Lease) {
		return ref
	}
	return nil
}

// end says when the lease of ref ended as v was read.
func (v *seen) end(ref *leaseRef) time.Time {
	return driverutil.Later(ref.Until, v.Renewed[ref.Lease].End)
}

// extend has the lease of a claim end at until, or later.
func (d *standing) extend(id text, until time.Time) {
	if ref := d.of(id); ref != nil {
		ref.Until = driverutil.Later(ref.Until, until)
		return
	}
	d.Leases = append(d.Leases, leaseRef{id, rand.Text(), until})
}

// write returns the document that c makes of key, which is then as n.
func write(key string, c *swaplock.Change, n *seen) *document {
	return &document{
		Format: format, Key: text(key), Nonce: rand.Text(), Last: c.Last, Mark: text(c.Mark),
		MarkedBy: text(c.MarkedBy), standing: n.standing, Line: c.Document,
	}
}

// next returns what c makes of v, but for the leases that it lends.
func (v *seen) next(c *swaplock.Change) *seen {
	n := &seen{Renewed: v.Renewed, Messages: v.Messages[c.Arrivals:]}
	n.Swap, n.Holder, n.Done = v.Swap+1, text(c.Holder), v.Done
	if c.Arrivals > 0 {
		n.Done = v.Messages[c.Arrivals-1].Version
	}
	n.Leases = slices.DeleteFunc(slices.Clone(v.Leases), func(ref leaseRef) bool {
		return ref.ID == v.Holder && ref.ID != n.Holder || slices.Contains(v.Ended, ref.Lease) ||
			slices.Contains(c.Drop, string(ref.ID))
	})
	if c.Holder != "" {
		n.extend(n.Holder, c.Expires)
	}
	return n
}
