package natslock

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/swaplock"
)

// value is the entry of a lock, under "line.KEY". Mark, MarkedBy, Holder and the IDs of leases are escaped.
type value struct {
	Last     int64            `json:"last"` // the largest token drawn
	Mark     string           `json:"mark,omitempty"`
	MarkedBy string           `json:"marked_by,omitempty"`
	Holder   string           `json:"holder,omitempty"` // its lease is among Leases
	Leases   map[string]lease `json:"leases,omitempty"` // by ID
	Done     uint64           `json:"done,omitempty"`   // the revision of the last message that was done
	Document json.RawMessage  `json:"line,omitempty"`
}

// lease is renewed under "lease.KEY.NAME", where no swap is in its way. Each has a new name: what is left of one is
// of no other.
type lease struct {
	Name  string    `json:"name"`
	Until time.Time `json:"until"` // unless a renewal ends later
}

// version holds what a swap has to know of a reading.
type version struct {
	Revision uint64            `json:"r"`
	Done     uint64            `json:"d,omitempty"`
	Holder   string            `json:"h,omitempty"`
	Leases   map[string]lease  `json:"l,omitempty"` // as they are renewed
	Renewals map[string]uint64 `json:"n,omitempty"` // their revisions, by name
	Dead     []string          `json:"k,omitempty"` // names of leases that have ended for good
	Messages []note            `json:"m,omitempty"`
}

type note struct {
	Name     string
	Revision uint64
}

func (v *version) String() string {
	if v.Revision == 0 && len(v.Messages) == 0 {
		return ""
	}
	text, _ := json.Marshal(v)
	return string(text)
}

// Read reads the line of key, and what else there is of it.
func (s *store) Read(ctx context.Context, key string, _ int) (st swaplock.State, err error) {
	st, _, err = s.read(ctx, key)
	return st, err
}

// line reads what is under "line.KEY".
func (s *store) line(ctx context.Context, key string) (l value, revision uint64, err error) {
	m, err := s.get(ctx, "line."+names.Escape(key))
	if m == nil || err != nil {
		return l, 0, err
	}
	return l, m.Revision, m.decode(key, &l)
}

func (s *store) read(ctx context.Context, key string) (st swaplock.State, v version, err error) {
	var l value
	var others []string
	err = driverutil.Each(2, atOnce, func(i int) (err error) {
		if i == 0 {
			l, v.Revision, err = s.line(ctx, key)
		} else {
			others, st.Now, err = s.list(ctx, "*."+names.Escape(key)+".>")
		}
		return err
	})
	if err != nil {
		return st, v, err
	}
	v.Done, v.Holder, v.Leases, v.Renewals = l.Done, l.Holder, l.Leases, map[string]uint64{}
	if st.Arrivals, err = s.rest(ctx, key, &v, others); err != nil {
		return st, v, err
	}
	st.Content = swaplock.Content{
		Last: l.Last, Mark: unescape(l.Mark), MarkedBy: unescape(l.MarkedBy), Holder: unescape(l.Holder),
		Document: l.Document,
	}
	st.Records = make(map[string]time.Time)
	for id, e := range v.Leases {
		dead := slices.Contains(v.Dead, e.Name)
		switch {
		case id != l.Holder && !dead:
			st.Records[unescape(id)] = e.Until
		case id == l.Holder && dead && e.Until.After(st.Now): // by the clock of an earlier leader
			st.Expires = st.Now
		case id == l.Holder:
			st.Expires = e.Until
		}
	}
	st.Version = v.String()
	return st, v, nil
}

// rest reads the renewals of the leases of v, and the messages that were not done.
func (s *store) rest(ctx context.Context, key string, v *version, others []string) ([]swaplock.Arrival, error) {
	ids := make(map[string]string) // by name
	for id, e := range v.Leases {
		ids[e.Name] = id
	}
	others = slices.DeleteFunc(others, func(name string) bool {
		return !strings.HasPrefix(name, "note.") && ids[last(name)] == ""
	})
	found := make([]*message, len(others))
	err := driverutil.Each(len(others), atOnce, func(i int) (err error) {
		found[i], err = s.get(ctx, others[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(m *message) bool { return m == nil })
	slices.SortFunc(found, func(a, b *message) int { return cmp.Compare(a.Revision, b.Revision) })
	var arrivals []swaplock.Arrival
	for _, m := range found {
		own := last(m.name)
		if e, ok := v.Leases[ids[own]]; ok {
			var r renewal
			if err := m.decode(key, &r); err != nil {
				return nil, err
			}
			e.Until = driverutil.Later(e.Until, m.At.Add(time.Duration(r.TTL)))
			if r.Dead {
				v.Dead = append(v.Dead, own)
			}
			v.Leases[ids[own]], v.Renewals[own] = e, m.Revision
		} else if m.Revision > v.Done && len(m.Value) > 0 {
			arrivals = append(arrivals, swaplock.Arrival{Message: true, Claim: m.Value, At: m.At})
			v.Messages = append(v.Messages, note{m.name, m.Revision})
		}
	}
	return arrivals, nil
}

func leaseName(key, name string) string { return "lease." + names.Escape(key) + "." + name }

// last is the last part of a name.
func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
