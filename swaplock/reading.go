package swaplock

import (
	"cmp"
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

// errPart says that a step must see all arrivals. A caller sees it if a store does not return all of them.
var errPart = errors.New("the store was asked for all arrivals, and says that there are more")

// reading is a line that was read, and where its leases are.
type reading struct {
	State
	key string
	line.Line
	origins []origin             // by their tokens
	arrived []*line.Claim        // the claims of State.Arrivals, in order; nil for a message
	lent    map[*line.Claim]bool // those whose leases are in records from this step on

	opens    bool            // the step lets others arrive
	appended bool            // the step that runs has sent its job.other
	obeyed   map[string]bool // by the ID of a message to leave: its claim was there
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
	if err := st.possible(key); err != nil {
		return nil, err
	}
	d, err := parse(key, st.Document)
	if err != nil {
		return nil, err
	}
	if st.Last < 0 || st.Last > lastToken {
		return nil, damaged(key, fmt.Sprintf("its counter of tokens is %d", st.Last))
	}
	n := len(d.Claims) + len(st.Arrivals)
	r := &reading{State: st, key: key}
	r.Line.Last, r.Line.Mark, r.Line.MarkedBy = st.Content.Last, string(st.Content.Mark), st.Content.MarkedBy
	claims, places := make([]*line.Claim, 0, n+1), make([]place, 0, n)
	for i := range d.Claims {
		c := d.Claims[i].claim(key)
		c.Expires = sinceEpoch(d.Claims[i].Until)
		claims, places = append(claims, c), append(places, r.locate(c, d.Claims[i].Lent))
	}
	for i := range st.Arrivals {
		c, at, err := r.arrive(key, &st.Arrivals[i])
		if err != nil {
			return nil, err
		}
		if r.arrived = append(r.arrived, c); c != nil {
			claims, places = append(claims, c), append(places, at)
		}
	}
	if i := slices.IndexFunc(claims, unsound(st.Last)); i >= 0 {
		return nil, damaged(key, fmt.Sprintf("claim %d of it, with token %d, cannot be", i, claims[i].Token))
	}
	r.Restore(claims)
	// An arrival that fits holds the lock, though that is not written down: no claim before it can take
	// that away.
	r.Grant(&line.Step{Wall: st.Now})
	r.origins = make([]origin, len(claims))
	for i, c := range claims {
		r.origins[i] = origin{*c, places[i]}
	}
	if len(d.Tombstones) > 0 {
		r.Tombstones = make(map[string]line.Tombstone, len(d.Tombstones))
	}
	for _, t := range d.Tombstones {
		gone := driver.GoneError{Reason: t.Reason, Broken: t.Broken}
		r.Tombstones[string(t.ID)] = line.Tombstone{Until: sinceEpoch(t.Until), Gone: gone, Left: t.Left}
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
func (r *reading) arrive(key string, a *Arrival) (*line.Claim, place, error) {
	if a.Message {
		return nil, 0, nil
	}
	d := a.written
	if d == nil {
		d = new(claim)
		if err := json.Unmarshal(a.Claim, d); err != nil {
			return nil, 0, driver.Permanent(fmt.Errorf("an arrival at %.80q cannot be read: %w", key, err))
		}
	}
	c := d.claim(key)
	c.Token, c.Since = a.Token, a.At
	if c.Granted = c.ID == r.Holder; c.Granted {
		c.Mark = r.Line.Mark // which changes by a step only, and a step takes the arrival into the document
	}
	c.TTL, c.WaitTTL = driverutil.Lease(&c.Claim, c.Granted), 0
	c.Expires = sinceEpoch(a.At) + c.TTL
	lent := sinceEpoch(r.Records[c.ID]) >= c.Expires // an older one is of another claim that had the ID
	return c, r.locate(c, lent), nil
}

// locate finds the lease of c.
func (r *reading) locate(c *line.Claim, lent bool) place {
	switch {
	case lent:
		c.Expires = sinceEpoch(r.Records[c.ID])
		return inRecord
	case c.ID == r.Holder:
		c.Expires = sinceEpoch(r.State.Expires)
		return beside
	}
	return inDocument
}

// origin is c as it was read, or nil if it is new.
func (r *reading) origin(c *line.Claim) *origin {
	byToken := func(o origin, token int64) int { return cmp.Compare(o.Token, token) }
	if i, ok := slices.BinarySearchFunc(r.origins, c.Token, byToken); ok {
		return &r.origins[i]
	}
	return nil
}

// settle says where the lease of c is from now on. What ends its lease sooner, or gives it another
// ID, takes the lease into the document, where no renewal can be under way.
func (r *reading) settle(c *line.Claim) place {
	was := r.origin(c)
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

// lend starts the lease of c again, in a record.
func (r *reading) lend(s *line.Step, c *line.Claim, ttl time.Duration) error {
	if r.lent == nil {
		r.lent = map[*line.Claim]bool{}
	}
	r.lent[c] = true
	return r.Renew(s, &driver.Ticket{Claim: driver.Claim{ID: c.ID, TTL: ttl}})
}

// renew starts the lease of c again, where the store renews it from now on.
func (r *reading) renew(s *line.Step, c *line.Claim, ttl time.Duration) error {
	if r.settle(c) == beside {
		return r.Renew(s, &driver.Ticket{Claim: driver.Claim{ID: c.ID, TTL: ttl}})
	}
	return r.lend(s, c, ttl)
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
	c := &Change{If: r.Version, Seen: r.Seen, Ended: r.holderDied()}
	full, drawn := r.Full(), r.Line.Last != r.State.Content.Last
	switch {
	case !full && r.More:
		return nil, errPart // they may be granted
	case !full || drawn:
		c.IfLast = r.State.Content.Last
	}
	c.Arrivals, c.Lend = r.moved(), r.lends(s)
	if drawn {
		c.Arrivals = len(r.arrived) // the new claim is behind them
	}
	r.Sweep(s)
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
	if r.Soon == 0 && r.staysFull(c.Arrivals) { // who arrives does not look whether a lease has ended before its time
		c.Open = fromEpoch(r.NextExpiry())
	}
	c.Drop = r.needless()
	return c, nil
}

// staysFull reports whether a claim that joins must wait until the next swap, if moved of the arrivals go into the
// document. Others that wait may be withdrawn without a swap.
func (r *reading) staysFull(moved int) bool {
	stay, weight := r.stay(moved), int64(0)
	for _, c := range r.Claims {
		if c.Granted || c.Token < stay {
			if weight += c.Weight; weight >= c.Capacity {
				return true
			}
		}
	}
	return false
}

// stay is the token from which on arrivals stay where they are, if moved of them go into the document.
func (r *reading) stay(moved int) int64 {
	for _, a := range r.arrived[moved:] {
		if a != nil {
			return a.Token
		}
	}
	return math.MaxInt64
}

// moved is how many of the first arrivals the document must have, because the step has changed one.
func (r *reading) moved() (n int) {
	for i, c := range r.arrived {
		if c == nil {
			n = i + 1 // the step has done what the message says
		} else if r.Find(c.ID) != c || *c != r.origin(c).Claim && (c.Granted || r.settle(c) != inRecord) {
			n = i + 1
		}
	}
	return n
}

// lends are the records that a step makes or has end later.
func (r *reading) lends(s *line.Step) (ls []Lease) {
	for _, c := range r.Claims {
		if was := r.origin(c); r.settle(c) == inRecord && (r.lent[c] || c.Expires > was.Expires) {
			ls = append(ls, Lease{c.Key, c.ID, c.Expires - s.Mono}) // which may be longer than its TTL
		}
	}
	return ls
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
	d, stay := document{Format: format}, r.stay(c.Arrivals)
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
		if cl.Token < stay {
			d.Claims = append(d.Claims, w)
		}
	}
	if len(d.Claims)+len(r.Tombstones) == 0 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(r.Tombstones)) {
		t := r.Tombstones[id]
		w := tombstone{text(id), fromEpoch(t.Until), t.Gone.Reason, t.Gone.Broken, t.Left}
		d.Tombstones = append(d.Tombstones, w)
	}
	var err error
	c.Document, err = json.Marshal(d)
	return err
}

// same reports whether a step has changed nothing.
func (r *reading) same(c *Change) bool {
	was := &r.State.Content
	return c.Arrivals == 0 && len(c.Lend) == 0 && !r.opens &&
		c.Last == was.Last && c.Mark == was.Mark && c.MarkedBy == was.MarkedBy && c.Holder == was.Holder &&
		string(c.Document) == string(was.Document) && !c.Expires.After(was.Expires)
}

// needless lists the records that no claim has any more. Those of arrivals that were not read are not among them.
func (r *reading) needless() (ids []string) {
	if len(r.Records) == 0 {
		return nil
	}
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
		Version: version, Seen: c.Next, Now: r.Now, Lost: r.Lost, Records: r.Records,
		Content: c.Content, Arrivals: r.Arrivals[c.Arrivals:], More: r.More,
		sent: r.sent, read: r.read, took: r.took, unread: r.unread,
	}
}
