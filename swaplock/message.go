package swaplock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/line"
)

// message is a step that the next client to swap does for another client.
type message struct {
	Enter *claim              `json:"enter,omitempty"` // a claim that joins
	Leave text                `json:"leave,omitempty"` // the ID of a claim that leaves
	Lend  text                `json:"lend,omitempty"`  // the ID of a claim that gets a record
	Token int64               `json:"token,omitempty"` // of that claim
	TTL   driverutil.Duration `json:"ttl,omitempty"`   // of the record
}

// note is m, for the claim with id, as it is sent; nil if a store might spell it in another way.
func note(id string, m message) []byte {
	text, err := json.Marshal(&m)
	if err != nil || !plain(id) {
		return nil
	}
	return text
}

// append has others do the step of j, if that can be.
func (b *Backend) append(ctx context.Context, key string, j *job) error {
	if b.messenger == nil || j.asks == nil || j.appended {
		return nil
	}
	j.other = j.asks()
	if j.other == nil {
		return nil
	}
	added, err := b.messenger.Message(ctx, key, j.other)
	j.appended = added || err != nil && !driverutil.RefusedForNow(err) // all jobs of a batch end with one error
	return b.failed(ctx, err)
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
			if err := r.admit(s, &r.Arrivals[i], m.Enter); err != nil {
				return err
			}
			continue
		}
		id := string(m.Leave + m.Lend)
		c := r.Find(id)
		there := c != nil && c.Token == m.Token
		if m.Leave != "" {
			if r.obeyed == nil {
				r.obeyed = map[string]bool{}
			}
			r.obeyed[id] = r.obeyed[id] || there
		}
		switch {
		case !there:
		case m.Leave != "":
			_ = r.Leave(s, &driver.Ticket{Claim: c.Claim}, driver.Exit{})
		default:
			_ = r.renew(s, c, time.Duration(m.TTL))
		}
	}
	return nil
}

// admit has a claim join that asks for it by a message, unless its client has given up since.
func (r *reading) admit(s *line.Step, a *Arrival, d *claim) error {
	c := d.claim(r.key).Claim
	switch {
	case r.Now.Sub(a.At) >= driverutil.Lease(&c, false):
		return nil
	case r.More:
		return errPart // its place is behind the arrivals that were not read
	}
	if own, err := r.Enter(s, c); err == nil { // else the client finds out why it may not join
		own.Node = d.Node
	}
	return nil
}

// asRead reports whether the claim with id is as it was read.
func (r *reading) asRead(id string) bool {
	c := r.Find(id)
	i := slices.IndexFunc(r.origins, func(o origin) bool { return o.ID == id && !o.Lingering })
	if c == nil || i < 0 {
		return c == nil && i < 0
	}
	return *c == r.origins[i].Claim && !r.lent[c]
}

// has reports whether the message m waits among the arrivals.
func (r *reading) has(m []byte) bool {
	return slices.ContainsFunc(r.Arrivals, func(a Arrival) bool { return a.Message && bytes.Equal(a.Claim, m) })
}
