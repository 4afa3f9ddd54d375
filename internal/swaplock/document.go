package swaplock

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/line"
)

// format is the format of the documents that this code writes. It reads no newer one.
const format = 1

// document is the line of a key as it is written down.
type document struct {
	Format     int         `json:"format"`
	Claims     []claim     `json:"claims,omitempty"`
	Tombstones []tombstone `json:"tombstones,omitempty"`
}

// claim is one place in line, as it is written down.
type claim struct {
	ID        text      `json:"id"`
	Owner     string    `json:"owner,omitempty"`
	Note      string    `json:"note,omitempty"`
	Token     int64     `json:"token"`
	Span      int64     `json:"span,omitempty"`     // if not 1
	Capacity  int64     `json:"capacity,omitempty"` // if not driver.RW
	Weight    int64     `json:"weight,omitempty"`   // if not the capacity
	Named     bool      `json:"named,omitempty"`
	Granted   bool      `json:"granted,omitempty"`
	Lingering bool      `json:"lingering,omitempty"`
	Since     time.Time `json:"since"`
	TTL       duration  `json:"ttl"`
	Until     time.Time `json:"until,omitzero"` // of a claim whose lease is in the document
	Lent      bool      `json:"lent,omitempty"` // the lease is in a record
	Mark      text      `json:"mark,omitempty"` // as of the grant
}

// tombstone keeps a claim out.
type tombstone struct {
	ID     text      `json:"id"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
	Broken bool      `json:"broken,omitempty"`
}

// text is a string of any bytes.
type text string

// duration is written as people write it.
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(b []byte) error {
	parsed, err := time.ParseDuration(string(b))
	*d = duration(parsed)
	return err
}

type binary struct {
	Base64 []byte `json:"base64"`
}

func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(binary{[]byte(t)})
}

func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var raw binary
		err := json.Unmarshal(b, &raw)
		*t = text(raw.Base64)
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// place is where a lease is.
type place int

const (
	inDocument place = iota
	beside           // the claim is the holder of the line
	inRecord
)

// reading is a line that was read, and where its leases are.
type reading struct {
	State
	line.Line
	places map[*line.Claim]lease
	lent   map[*line.Claim]bool // get records in this step
}

// lease is where a lease was, and until when.
type lease struct {
	id      string // of the claim when it was read
	place   place
	expires time.Duration
}

// open reads st. A claim without the record that it should have is dead.
func open(key string, st State) (*reading, error) {
	r := &reading{State: st, lent: map[*line.Claim]bool{}}
	r.Line.Last, r.Line.Mark, r.Line.MarkedBy = st.Content.Last, driver.Mark(st.Content.Mark), st.Content.MarkedBy
	var d document
	if len(st.Document) > 0 {
		if err := json.Unmarshal(st.Document, &d); err != nil {
			return nil, &driver.PermanentError{Err: fmt.Errorf("the document of %.80q cannot be read: %w", key, err)}
		}
		if d.Format != format {
			return nil, &driver.PermanentError{Err: fmt.Errorf(
				"the document of %.80q has format %d and this release reads format %d: use the newer release",
				key, d.Format, format)}
		}
	}
	r.places = make(map[*line.Claim]lease, len(d.Claims))
	claims := make([]*line.Claim, 0, len(d.Claims)+1)
	for i := range d.Claims {
		c := d.Claims[i].open(key)
		at := lease{id: c.ID, expires: sinceEpoch(d.Claims[i].Until)}
		switch {
		case d.Claims[i].Lent:
			at.place, at.expires = inRecord, sinceEpoch(st.Records[c.ID])
		case c.ID == st.Holder:
			at.place, at.expires = beside, sinceEpoch(st.Expires)
		}
		c.Expires = at.expires
		r.places[c] = at
		claims = append(claims, c)
	}
	r.Restore(claims)
	for _, t := range d.Tombstones {
		if r.Tombstones.ByID == nil {
			r.Tombstones.ByID = make(map[string]line.Tombstone)
		}
		gone := driver.GoneError{Reason: t.Reason, Broken: t.Broken}
		r.Tombstones.ByID[string(t.ID)] = line.Tombstone{Until: sinceEpoch(t.Until), Gone: gone}
	}
	return r, nil
}

func (c *claim) open(key string) *line.Claim {
	capacity, span := c.Capacity, max(c.Span, 1)
	if capacity == 0 {
		capacity = driver.RW
	}
	weight := c.Weight
	if weight == 0 {
		weight = capacity
	}
	return &line.Claim{
		Claim: driver.Claim{
			Key: key, ID: string(c.ID), Owner: c.Owner, Note: c.Note, Capacity: capacity, Weight: weight,
			TTL: time.Duration(c.TTL), Span: span, Named: c.Named,
		},
		Token: c.Token, Since: c.Since, Mark: driver.Mark(c.Mark), Granted: c.Granted, Lingering: c.Lingering,
	}
}

// close writes the line down.
func (r *reading) close(s *line.Step) (Content, error) {
	content := Content{Last: r.Line.Last, Mark: string(r.Line.Mark), MarkedBy: r.Line.MarkedBy}
	d := document{Format: format}
	for _, c := range r.Claims {
		w := writeDown(c)
		switch r.settle(c) {
		case beside:
			content.Holder, content.Expires = c.ID, fromEpoch(c.Expires)
		case inRecord:
			w.Lent = true
		case inDocument:
			w.Until = fromEpoch(c.Expires)
		}
		d.Claims = append(d.Claims, w)
	}
	r.Tombstones.Sweep(s)
	for _, id := range slices.Sorted(maps.Keys(r.Tombstones.ByID)) {
		t := r.Tombstones.ByID[id]
		d.Tombstones = append(d.Tombstones, tombstone{text(id), fromEpoch(t.Until), t.Gone.Reason, t.Gone.Broken})
	}
	if len(d.Claims)+len(d.Tombstones) == 0 {
		return content, nil
	}
	var err error
	content.Document, err = json.Marshal(d)
	return content, err
}

// settle says where the lease of c is from now on. What ends its lease sooner, or gives it another
// ID, takes the lease into the document, where no renewal can be under way.
func (r *reading) settle(c *line.Claim) place {
	at, known := r.places[c]
	switch {
	case r.lent[c] && !c.Lingering:
		return inRecord
	case !known && len(r.Claims) == 1 && c.Granted:
		return beside
	case !known:
		return inDocument
	case at.place == beside && !c.Lingering:
		return beside
	case at.place == inRecord && !c.Lingering && c.ID == at.id:
		return inRecord
	}
	return inDocument
}

// ended lists the records that have ended, as far as they are there.
func (r *reading) ended() (ids []string) {
	for id, end := range r.Records {
		if !end.After(r.Now) {
			ids = append(ids, id)
		}
	}
	return ids
}

// needless lists the records that no claim has any more.
func (r *reading) needless() (ids []string) {
	needed := make(map[string]bool)
	for _, c := range r.Claims {
		if r.settle(c) == inRecord {
			needed[c.ID] = true
		}
	}
	for id := range r.Records {
		if !needed[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// purged reports whether the holder's lease has ended and the holder was purged.
func (r *reading) purged() bool {
	return r.Holder != "" && sinceEpoch(r.Expires) <= sinceEpoch(r.Now)
}

func writeDown(c *line.Claim) claim {
	w := claim{
		ID: text(c.ID), Owner: c.Owner, Note: c.Note, Token: c.Token, Named: c.Named, Granted: c.Granted,
		Lingering: c.Lingering, Since: c.Since, TTL: duration(c.TTL), Mark: text(c.Mark),
	}
	if c.Span != 1 {
		w.Span = c.Span
	}
	if c.Capacity != driver.RW {
		w.Capacity = c.Capacity
	}
	if c.Weight != c.Capacity {
		w.Weight = c.Weight
	}
	return w
}

// same reports whether a step has changed nothing.
func (r *reading) same(c *Content) bool {
	was := &r.State.Content
	return c.Last == was.Last && c.Mark == was.Mark && c.MarkedBy == was.MarkedBy && c.Holder == was.Holder &&
		string(c.Document) == string(was.Document) && !c.Expires.After(was.Expires)
}

func sinceEpoch(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Duration(t.UnixNano())
}

func fromEpoch(d time.Duration) time.Time { return time.Unix(0, int64(d)).UTC() }
