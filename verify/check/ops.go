package check

import (
	"math"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/model"
	"github.com/fencelock/fencelock/verify/traffic"
)

// presence is a time in which a claim may have been in somebody's way without holding
// for certain.
type presence struct {
	claim    *claim
	from, to int64
}

// operations makes of each key a history for the model.
func operations(all []*claim, o Options, spans []history.Span) map[string][]model.Op {
	// From when on a claim that nobody has given back is no longer in the store.
	gone := func(at int64) int64 {
		limit := at + int64(o.stuck())
		for _, s := range spans {
			if int64(s.From) <= limit && int64(s.To) >= at {
				limit = max(limit, int64(s.To)+int64(o.stuck()))
			}
		}
		return limit
	}
	ops := map[string][]model.Op{}
	for key, cs := range byKey(all) {
		var present []presence
		for _, c := range cs {
			present = append(present, c.presence(gone))
		}
		for _, c := range cs {
			covered := func() bool {
				for _, p := range present {
					if p.claim != c && p.from <= c.done.At && p.to >= c.call.At {
						return true
					}
				}
				return !o.Fair
			}
			ops[key] = append(ops[key], c.operations(covered, gone)...)
		}
	}
	return ops
}

// presence is from the call to its answer, and goes on for who gave up: nobody knows when
// the store heard of it. While it holds, and until its lease has run out, the model knows
// that it is in the way.
func (c *claim) presence(gone func(int64) int64) presence {
	p := presence{c, c.call.At, c.done.At}
	switch {
	case c.over == math.MaxInt64 || c.broken != 0:
		p.to = math.MaxInt64
	case c.done.Op == traffic.Refused:
	case !c.held:
		p.to = gone(c.over)
	}
	return p
}

// op is one operation on c.
func (c *claim) op(do model.Do, call, ret int64) model.Op {
	o := model.Op{
		Do: do, Claim: c.number, Weight: model.RW, Capacity: model.RW, Call: call, Return: ret, Name: c.name,
	}
	switch c.kind {
	case traffic.Shared:
		o.Weight = 1
	case traffic.Permit:
		o.Weight, o.Capacity = c.weight, c.size
	}
	if c.kind == traffic.Exclusive {
		o.Token = c.done.Token
	}
	return o
}

func (c *claim) operations(covered func() bool, gone func(int64) int64) []model.Op {
	switch {
	case c.done.Op == traffic.Refused:
		o := c.op(model.Refuse, c.call.At, c.done.At)
		o.Covered = covered()
		return []model.Op{o}
	case c.done.Op == traffic.Late && c.broken == 0:
		return []model.Op{
			c.op(model.Acquire, c.call.At, c.done.At), c.op(model.End, c.call.At, gone(c.over)),
		}
	case !c.held || c.voided:
		return nil // a wish of unknown outcome may be left out
	}
	ops := []model.Op{c.op(model.Acquire, c.call.At, c.done.At)}
	for i, h := range c.handles {
		if i == 0 || c.broken != 0 && h.held.At > c.broken {
			continue
		}
		o := c.op(model.Reenter, h.asked, h.held.At)
		if o.Token != 0 {
			o.Token = h.held.Token
		}
		ops = append(ops, o)
	}
	return append(ops, c.ends(gone)...)
}

// ends are the releases of c, and the end of what was not released.
func (c *claim) ends(gone func(int64) int64) (ops []model.Op) {
	ended := int64(0) // from when on the rest of it may have ended
	for _, h := range c.handles {
		if h.released.Op == traffic.Released && (c.broken == 0 || h.released.At < c.broken) {
			ops = append(ops, c.op(model.Release, h.release.At, h.released.At))
		} else {
			ended = c.sure
		}
	}
	if ended == 0 {
		return ops
	}
	// The store ends it when its lease has run out, if not before.
	last := int64(model.Never)
	if c.over != math.MaxInt64 && c.broken == 0 {
		last = gone(c.over)
	}
	return append(ops, c.op(model.End, ended, last))
}
