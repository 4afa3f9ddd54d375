package s3lock

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/swaplock"
)

// format is the format of the objects that this code writes. It reads no newer one.
const format = 1

type text = driverutil.Text

// document is the object of a key. As State.Version it has no Line.
type document struct {
	Format   int             `json:"format"`
	ETag     string          `json:"etag,omitempty"` // in a version only
	Key      text            `json:"key"`
	Nonce    string          `json:"nonce"`          // an ETag may be a hash of the content, and must never return
	Past     []string        `json:"past,omitempty"` // the nonces of the last versions
	Last     int64           `json:"last"`
	Mark     text            `json:"mark,omitempty"`
	MarkedBy text            `json:"marked_by,omitempty"`
	Holder   text            `json:"holder,omitempty"`
	Expires  time.Time       `json:"expires,omitzero"` // of the holder, unless its lease object says later
	Leases   []leaseRef      `json:"leases,omitempty"`
	Line     json.RawMessage `json:"line,omitempty"` // see package swaplock
}

// leaseRef names the lease object of a claim.
type leaseRef struct {
	ID    text   `json:"id"`
	Lease string `json:"lease"`           // no other claim ever gets it
	Ended bool   `json:"ended,omitempty"` // in a version only
}

const (
	pastMost = 8
	// busySize is the least size of a document with a line, and others seldom have it: List need not read them.
	busySize = 768
)

func (d *document) body() []byte {
	b, _ := json.Marshal(d) // a document of swaplock is JSON
	if len(d.Line) > 0 {
		b = append(b, bytes.Repeat([]byte(" "), max(0, busySize-len(b)))...)
	}
	return b
}

func parse(name string, o Object) (d document, err error) {
	switch {
	case o.Date.IsZero():
		err = fmt.Errorf("the server says no Date with %s, so it cannot tell when a lease ends", name)
	case o.ETag == "":
		return d, nil
	default:
		if err = json.Unmarshal(o.Body, &d); err != nil {
			err = fmt.Errorf("%s is not an object of fencelock: %w: delete it while nobody holds the lock", name, err)
		} else if d.Format != format {
			err = fmt.Errorf("%s has format %d and this release reads format %d: use the newer release",
				name, d.Format, format)
		}
	}
	if d.ETag = o.ETag; err != nil {
		err = driver.Permanent(err)
	}
	return d, err
}

func (d document) version() string {
	if d.ETag == "" {
		return ""
	}
	d.Line = nil
	return string(d.body())
}

func readVersion(v string) (d document) {
	_ = json.Unmarshal([]byte(v), &d) // that of a missing object is empty
	return d
}

// of returns the reference to the lease of the claim with id, or nil.
func (d *document) of(id string) *leaseRef {
	if i := slices.IndexFunc(d.Leases, func(r leaseRef) bool { return string(r.ID) == id }); i >= 0 {
		return &d.Leases[i]
	}
	return nil
}

// floor is a time before which the lease of ref does not end.
func (d *document) floor(ref *leaseRef) (t time.Time) {
	if ref.ID == d.Holder {
		t = d.Expires
	}
	return t
}

// next returns the document that c makes of v, but for the leases that it lends.
func (v *document) next(key string, c *swaplock.Change) *document {
	d := &document{
		Format: format, Key: text(key), Nonce: rand.Text(), Last: max(v.Last, c.Last), Mark: text(c.Mark),
		MarkedBy: text(c.MarkedBy), Holder: text(c.Holder), Expires: c.Expires, Line: c.Document,
	}
	if v.Nonce != "" {
		d.Past = append(v.Past[max(0, len(v.Past)+1-pastMost):], v.Nonce)
	}
	stays := d.Holder == v.Holder && d.Holder != "" && c.Ended.IsZero() // or the ID enters again, with another lease
	if stays {
		d.Expires = driverutil.Later(d.Expires, v.Expires)
	}
	for _, ref := range v.Leases {
		id := string(ref.ID)
		if !ref.Ended && !slices.Contains(c.Drop, id) && (ref.ID != v.Holder || stays) {
			d.Leases = append(d.Leases, ref)
		}
	}
	if d.Holder != "" && !stays {
		d.Leases = append(d.Leases, leaseRef{ID: d.Holder, Lease: rand.Text()})
	}
	return d
}

// longestName keeps names below what a file may have: some servers keep objects as files.
const longestName = 160

// escape writes a key as part of the name of an object, without a /: an object may not be where a folder is.
func escape(key string) string {
	var b strings.Builder
	for i, c := range []byte(key) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if letter || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "!%02X", c)
		}
	}
	return b.String()
}

// lineName is the name of the object of key. That of a long key ends with a hash.
func (s *store) lineName(key string) string {
	name := escape(key)
	if len(name) > longestName {
		name = fmt.Sprintf("%s~%x", name[:longestName], sha256.Sum256([]byte(key)))
	}
	return s.o.Prefix + "line/" + name
}
