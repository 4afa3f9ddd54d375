package swaplock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/line"
)

// errPart says that a step must see all arrivals.
var errPart = errors.New("there are more arrivals")

// reading is a line that was read, and where its leases are.
type reading struct {
	State
	key string
	line.Line
	origins map[*line.Claim]*origin
	arrived []*line.Claim        // the claims of State.Arrivals, in order; nil for a message
	lent    map[*line.Claim]bool // those that get a record in this step

	opens    bool            // the step lets others arrive
	appended bool            // the step that runs has sent its job.other
	missed   map[string]bool // the IDs of messages whose claims are gone
	left     map[string]bool // the IDs of claims that a message took out in this very step
}

// origin holds a claim as it was read.
type origin struct {
	line.Claim
	place place
}

// place is where a lease is.
type place int

const (
	inDocument place = iota // or in an arrival
	beside                  // the claim is the holder of the line
	inRecord
)

// lastToken is the largest token behind which there is room for others.
const lastToken = math.MaxInt64 - limit.Span

// open reads st. A claim without the record that it should have is dead.
func open(key string, st State) (*reading, error) {
	d, err := parse(key, st.Document)
	if err != nil {
		return nil, err
	}
	if st.Last < 0 || st.Last > lastToken {
		return nil, damaged(key, fmt.Sprintf("its counter of tokens is %d", st.Last))
	}
	n := len(d.Claims) + len(st.Arrivals)
	r := &reading{State: st, key: key, origins: make(map[*line.Claim]*origin, n)}
	r.Line.Last, r.Line.Mark, r.Line.MarkedBy = st.Content.Last, string(st.Content.Mark), st.Content.MarkedBy
	claims := make([]*line.Claim, 0, n+1)
	for i := range d.Claims {
		c := d.Claims[i].claim(key)
		c.Expires = sinceEpoch(d.Claims[i].Until)
		r.locate(c, d.Claims[i].Lent)
		claims = append(claims, c)
	}
	for i := range st.Arrivals {
		c, err := r.arrive(key, &st.Arrivals[i])
		if err != nil {
			return nil, err
		}
		if r.arrived = append(r.arrived, c); c != nil {
			claims = append(claims, c)
		}
	}
	if i := slices.IndexFunc(claims, unsound(st.Last)); i >= 0 {
		return nil, damaged(key, fmt.Sprintf("claim %d of it, with token %d, cannot be", i, claims[i].Token))
	}
	r.Restore(claims)
	// An arrival that fits holds the lock, though that is not written down: no claim before it can take
	// that away.
	r.Grant(&line.Step{Wall: st.Now})
	for _, c := range claims {
		r.origins[c].Claim = *c
	}
	for _, t := range d.Tombstones {
		if r.Tombstones.ByID == nil {
			r.Tombstones.ByID = make(map[string]line.Tombstone)
		}
		gone := driver.GoneError{Reason: t.Reason, Broken: t.Broken}
		r.Tombstones.ByID[string(t.ID)] = line.Tombstone{Until: sinceEpoch(t.Until), Gone: gone}
	}
	return r, nil
}

// unsound returns a function that reports whether the next claim of a line cannot be one.
func unsound(last int64) func(c *line.Claim) bool {
	token := int64(0) // of the one before it
	return func(c *line.Claim) bool {
		behind := c.Token > token
		token = c.Token
		return !behind || c.Span < 1 || c.Span > limit.Span || c.Token > last-c.Span+1 ||
			c.Weight < 1 || c.Weight > c.Capacity || c.Capacity > driver.RW
	}
}

func damaged(key, how string) error {
	return driver.Permanent(fmt.Errorf("the line of %.80q is damaged, %s: delete what the store has of this key",
		key, how))
}

// arrive reads an arrival.
func (r *reading) arrive(key string, a *Arrival) (*line.Claim, error) {
	if a.Message {
		return nil, nil
	}
	d := a.written
	if d == nil {
		d = new(claim)
		if err := json.Unmarshal(a.Claim, d); err != nil {
			return nil, driver.Permanent(fmt.Errorf("an arrival at %.80q cannot be read: %w", key, err))
		}
	}
	c := d.claim(key)
	c.Token, c.Since = a.Token, a.At
	if c.Granted = c.ID == r.Holder; c.Granted {
		c.Mark = r.Line.Mark // which changes by a step only, and a step takes the arrival into the document
	}
	c.TTL, c.WaitTTL = driverutil.Lease(&c.Claim, c.Granted), 0
	c.Expires = sinceEpoch(a.At) + c.TTL
	r.locate(c, sinceEpoch(r.Records[c.ID]) >= c.Expires) // an older one is of another claim that had the ID
	return c, nil
}

// locate finds the lease of c.
func (r *reading) locate(c *line.Claim, lent bool) {
	at := inDocument
	switch {
	case lent:
		at, c.Expires = inRecord, sinceEpoch(r.Records[c.ID])
	case c.ID == r.Holder:
		at, c.Expires = beside, sinceEpoch(r.State.Expires)
	}
	r.origins[c] = &origin{place: at}
}

// place is where the lease of c was when the line was read. That of a new claim is in no place of its own.
func (r *reading) place(c *line.Claim) place {
	if o := r.origins[c]; o != nil {
		return o.place
	}
	return inDocument
}

// settle says where the lease of c is from now on. What ends its lease sooner, or gives it another
// ID, takes the lease into the document, where no renewal can be under way.
func (r *reading) settle(c *line.Claim) place {
	was := r.origins[c]
	switch {
	case c.Lingering, c.Noticed:
		return inDocument
	case r.lent[c]:
		return inRecord
	case was == nil && len(r.Claims) == 1 && c.Granted:
		return beside
	case was == nil || was.place == inRecord && c.ID != was.ID:
		return inDocument
	}
	return was.place
}

// obey does what the messages among the arrivals say.
func (r *reading) obey(s *line.Step) error {
	for i := range r.Arrivals {
		if !r.Arrivals[i].Message {
			continue
		}
		var m message
		if err := json.Unmarshal(r.Arrivals[i].Claim, &m); err != nil {
			return driver.Permanent(fmt.Errorf("a message among the arrivals cannot be read: %w", err))
		}
		if m.Enter != nil {
			r.admit(s, &r.Arrivals[i], m.Enter)
			continue
		}
		id := string(m.Leave + m.Lend)
		switch c := r.Find(id); {
		case c == nil || c.Token != m.Token:
			if r.missed == nil {
				r.missed = map[string]bool{}
			}
			r.missed[id] = true
		case m.Leave != "":
			if r.left == nil {
				r.left = map[string]bool{}
			}
			r.left[id] = true
			_ = r.Leave(s, &driver.Ticket{Claim: c.Claim}, driver.Exit{})
		case r.place(c) == inDocument && !c.Noticed:
			r.lend(s, c, time.Duration(m.TTL))
		}
	}
	return nil
}

// admit has a claim join that asks for it by a message, unless its client has given up since.
func (r *reading) admit(s *line.Step, a *Arrival, d *claim) {
	c := d.claim(r.key).Claim
	own := r.Find(c.ID)
	if (own == nil || r.place(own) == inDocument) && r.Now.Sub(a.At) < driverutil.Lease(&c, false) {
		if own, err := r.Enter(s, c); err == nil { // else the client finds out why it may not join
			own.Node = d.Node
		}
	}
}

// asRead reports whether the claim with id is as it was read.
func (r *reading) asRead(id string) bool {
	c := r.Find(id)
	for _, was := range r.origins {
		if was.ID == id {
			return c != nil && was.Granted == c.Granted && !r.lent[c]
		}
	}
	return c == nil
}

// has reports whether the message m waits among the arrivals.
func (r *reading) has(m *Arrival) bool {
	return slices.ContainsFunc(r.Arrivals, func(a Arrival) bool { return a.Message && bytes.Equal(a.Claim, m.Claim) })
}

// lend starts the lease of c again, in a record.
func (r *reading) lend(s *line.Step, c *line.Claim, ttl time.Duration) {
	if r.lent == nil {
		r.lent = map[*line.Claim]bool{}
	}
	r.lent[c] = true
	_ = r.Renew(s, &driver.Ticket{Claim: driver.Claim{ID: c.ID, TTL: ttl}})
}

// missing returns errPart if the claim with id may be among the arrivals that were not read.
func (r *reading) missing(id string) error {
	if r.More && r.Find(id) == nil {
		return errPart
	}
	return nil
}

// opensFor reports whether a step should let c arrive in a long line, and not read and write all of it.
func (r *reading) opensFor(c *driver.Claim) bool {
	return r.More && !r.appended && r.Full() && r.Claims[0].Capacity == c.Capacity && r.Find(c.ID) == nil
}

// beyond reports whether the claim with token, which was not found, may be among the arrivals that were not
// read.
func (r *reading) beyond(token int64) bool {
	n := len(r.Claims)
	return r.More && (n == 0 || token > r.Claims[n-1].Token)
}

// ended lists the records that have ended.
func (r *reading) ended() (ids []string) {
	for id, end := range r.Records {
		if !end.After(r.Now) {
			ids = append(ids, id)
		}
	}
	return ids
}

// A swap writes all claims of the document, so it has only the first ones of a long line: once there
// are fewer than low, arrivals join them until there are high.
const low, high = 4, 16

// change is the swap that has the line as it is now, or nil if there is nothing to write.
func (r *reading) change(s *line.Step) (*Change, error) {
	c := &Change{If: r.Version, Ended: r.holderDied()}
	full, drawn := r.Full(), r.Line.Last != r.State.Content.Last
	switch {
	case !full && r.More:
		return nil, errPart // they may be granted
	case !full || drawn:
		c.IfLast = r.State.Content.Last
	}
	c.Arrivals = r.moved()
	if drawn {
		c.Arrivals = len(r.arrived) // the new claim is behind them
	}
	r.Tombstones.Sweep(s)
	if err := r.write(c); err != nil {
		return nil, err
	}
	if r.same(c) {
		return nil, nil
	}
	if n := r.folded(); n > c.Arrivals {
		c.Arrivals = n
		if err := r.write(c); err != nil {
			return nil, err
		}
	}
	if len(r.Claims) > 0 {
		c.Capacity = r.Claims[0].Capacity
	}
	if full && r.Soon == 0 { // who arrives does not look whether a lease has ended before its time
		c.Open = fromEpoch(r.NextExpiry())
	}
	for claim := range r.lent {
		c.Lend = append(c.Lend, Lease{claim.Key, claim.ID, claim.Expires - s.Mono}) // which may be longer than its TTL
	}
	c.Drop = r.needless()
	return c, nil
}

// moved is how many of the first arrivals the document must have, because the step has changed one.
func (r *reading) moved() (n int) {
	for i, c := range r.arrived {
		if c == nil {
			n = i + 1 // the step has done what the message says
		} else if r.Find(c.ID) != c || *c != r.origins[c].Claim && (c.Granted || !r.lent[c]) {
			n = i + 1
		}
	}
	return n
}

// folded is how many of the arrivals the document has room for.
func (r *reading) folded() int {
	written := len(r.Claims)
	for _, c := range r.arrived {
		if c != nil && r.Find(c.ID) == c {
			written--
		}
	}
	if written >= low {
		return 0
	}
	return min(len(r.arrived), high-written)
}

// write writes the line down, but for the arrivals that stay where they are.
func (r *reading) write(c *Change) error {
	c.Content = Content{Last: r.Line.Last, Mark: string(r.Line.Mark), MarkedBy: r.Line.MarkedBy}
	stay := make(map[*line.Claim]bool)
	for _, a := range r.arrived[c.Arrivals:] {
		stay[a] = true
	}
	d := document{Format: format}
	for _, cl := range r.Claims {
		w := describe(&cl.Claim, cl.Node)
		w.Token, w.Since, w.Mark = cl.Token, cl.Since, text(cl.Mark)
		w.Granted, w.Lingering, w.Noticed = cl.Granted, cl.Lingering, cl.Noticed
		switch r.settle(cl) {
		case beside:
			c.Holder, c.Expires = cl.ID, fromEpoch(cl.Expires)
		case inRecord:
			w.Lent = true
		case inDocument:
			w.Until = fromEpoch(cl.Expires)
		}
		if !stay[cl] {
			d.Claims = append(d.Claims, w)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.Tombstones.ByID)) {
		t := r.Tombstones.ByID[id]
		d.Tombstones = append(d.Tombstones, tombstone{text(id), fromEpoch(t.Until), t.Gone.Reason, t.Gone.Broken})
	}
	if len(d.Claims)+len(d.Tombstones) == 0 {
		return nil
	}
	var err error
	c.Document, err = json.Marshal(d)
	return err
}

// same reports whether a step has changed nothing.
func (r *reading) same(c *Change) bool {
	was := &r.State.Content
	return c.Arrivals == 0 && len(r.lent) == 0 && !r.opens &&
		c.Last == was.Last && c.Mark == was.Mark && c.MarkedBy == was.MarkedBy && c.Holder == was.Holder &&
		string(c.Document) == string(was.Document) && !c.Expires.After(was.Expires)
}

// needless lists the records that no claim has any more. Those of arrivals that were not read are not among them.
func (r *reading) needless() (ids []string) {
	needed, read := make(map[string]bool), make(map[string]bool)
	for _, was := range r.origins {
		read[was.ID] = true
	}
	for _, c := range r.Claims {
		if r.settle(c) == inRecord {
			needed[c.ID] = true
		}
	}
	for id := range r.Records {
		if !needed[id] && (read[id] || !r.More) {
			ids = append(ids, id)
		}
	}
	return ids
}

// holderDied returns when the lease of the holder ended, or zero if it has not.
func (r *reading) holderDied() (ended time.Time) {
	if r.Holder != "" && !r.State.Expires.After(r.Now) {
		ended = r.State.Expires
	}
	return ended
}

// quiet is for how long no lease of the line ends.
func (r *reading) quiet() time.Duration {
	left := r.NextExpiry() - sinceEpoch(r.Now)
	if r.Soon > 0 {
		left = min(left, r.Soon)
	}
	return left
}

// whole returns the State if it has all that a later step must know of the line: there are no records.
func (r *reading) whole() *State {
	if len(r.Records)+len(r.lent) > 0 {
		return nil
	}
	st := r.State
	st.alone = len(r.Claims) == 1
	return &st
}

// after is what the store has now that c is swapped. The leases may end later than it says, and others be in records.
func (r *reading) after(c *Change, version string) State {
	return State{
		Version: version, Now: r.Now, Lost: r.Lost, Records: r.Records, sent: r.sent, read: r.read,
		Content: c.Content, Arrivals: r.Arrivals[c.Arrivals:], More: r.More,
	}
}
