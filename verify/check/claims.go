package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fencelock/fencelock/verify/traffic"
)

// claim is all that was written about one wish.
type claim struct {
	traffic.Line     // its Call
	number       int // of its own

	done traffic.Line // Held of the first handle, Refused, GaveUp, Late; Op empty if none
	held bool
	sure int64 // when it was last known to be held
	lost int64 // when it learnt that it is lost; 0 if it did not
	over int64 // when it was over for its user, who may have been killed; or never
	gone int64 // from when on it is no longer in the store, though nobody has given it back; or never

	looks   []traffic.Line // in which its lease said that it is held
	asked   int64          // when it was last asked for again
	handles []handle
	broken  int64 // from when on an operator, or a store that forgot, may have ended it; 0 for never
	voided  bool  // that was before it was held: nothing is known of it
}

// handle is one lease of a claim.
type handle struct {
	name     string
	asked    int64 // of a re-entry
	held     traffic.Line
	release  traffic.Line // Op empty if it was not called
	released traffic.Line // Released, Unconfirmed or Lost
}

// byKey sorts claims by their keys.
func byKey(all []*claim) map[string][]*claim {
	keys := map[string][]*claim{}
	for _, c := range all {
		keys[c.Key] = append(keys[c.Key], c)
	}
	return keys
}

// claims sorts lines by claim, in order of their calls.
func claims(lines []traffic.Line) []*claim {
	var all []*claim
	byName := map[string]*claim{}
	crashed := map[string]int64{}
	for _, l := range lines {
		c := byName[l.Claim]
		switch {
		case l.Op == traffic.Crash:
			crashed[l.Proc] = l.At
		case l.Op == traffic.Call && c == nil:
			c = &claim{Line: l, number: len(all), over: math.MaxInt64}
			byName[l.Claim] = c
			all = append(all, c)
		case c != nil: // or it is of nobody, or of a history that was cut
			c.add(l)
		}
	}
	for _, c := range all {
		if at, ok := crashed[c.Proc]; ok {
			c.over = min(c.over, at)
		}
	}
	return all
}

func (c *claim) add(l traffic.Line) {
	h := c.handle(l.Handle)
	switch l.Op {
	case traffic.Refused, traffic.GaveUp, traffic.Late:
		c.done, c.over = l, l.At
	case traffic.Again:
		c.asked = l.At
	case traffic.Held:
		asked := c.asked // a user does one thing after another
		if !c.held {
			c.held, c.done, asked = true, l, c.At
		}
		c.sure = l.At
		c.handles = append(c.handles, handle{name: l.Handle, asked: asked, held: l})
	case traffic.Look:
		c.looks = append(c.looks, l)
		c.sure = l.At
	case traffic.Release:
		c.sure = l.At
		if h != nil {
			h.release = l
		}
	case traffic.Released, traffic.Unconfirmed:
		if h != nil {
			h.released = l
		}
		if !slices.ContainsFunc(c.handles, func(h handle) bool { return h.released.Op == "" }) {
			c.over = min(c.over, l.At)
		}
	case traffic.Told, traffic.Lost:
		if c.lost == 0 {
			c.lost = l.At
		}
		if h != nil && l.Op == traffic.Lost {
			h.released = l
		}
		c.over = min(c.over, l.At)
	}
}

func (c *claim) handle(name string) *handle {
	for i := range c.handles {
		if c.handles[i].name == name {
			return &c.handles[i]
		}
	}
	return nil
}

// clean reports whether all handles were given back and the store, or the gate, has
// confirmed each.
func (c *claim) clean() bool {
	for _, h := range c.handles {
		if h.released.Op != traffic.Released {
			return false
		}
	}
	return c.held
}

// hit marks the claims that somebody broke, or that a store forgot.
func hit(all []*claim, lines []traffic.Line, ttl time.Duration) {
	keys := byKey(all)
	for i, l := range lines {
		switch l.Op {
		case traffic.Break:
			markBroken(keys[l.Key], l, lines[i+1:])
		case traffic.Forgot:
			markForgotten(all, l, lines[i+1:], ttl)
		}
	}
	for _, c := range all {
		if c.broken == 0 {
			continue
		}
		if c.held && c.broken <= c.done.At {
			c.voided = true
		}
		c.sure = min(c.sure, c.broken)
	}
}

// markBroken marks the claims whose span has the token that l breaks. A break that found
// none, as its answer in later says, marks nothing.
func markBroken(all []*claim, l traffic.Line, later []traffic.Line) {
	for _, m := range later {
		if m.Op == traffic.Broke && m.Proc == l.Proc && m.Key == l.Key && m.Token == l.Token {
			if m.Text == "none" {
				return
			}
			break
		}
	}
	for _, c := range all {
		if t := c.done.Token; t >= l.Token && t < l.Token+l.Span {
			c.broken = cmp.Or(c.broken, l.At) // the first counts
		}
	}
}

// markForgotten marks the claims that were wanted while the store may have forgotten them:
// from l until a TTL after the end of the fault.
func markForgotten(all []*claim, l traffic.Line, later []traffic.Line, ttl time.Duration) {
	end := l.At + int64(ttl)
	for _, m := range later {
		if m.Op == traffic.End && m.At >= l.At {
			end = m.At + int64(ttl)
			break
		}
	}
	for _, c := range all {
		if c.At <= end && c.over >= l.At {
			c.broken = cmp.Or(c.broken, l.At) // the first counts
		}
	}
}
