package check

import (
	"math"
	"slices"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/model"
	"github.com/fencelock/fencelock/verify/traffic"
)

// operations makes of each key a history for the model.
func operations(all []*claim, o Options, spans []history.Span) map[string][]model.Op {
	ops := map[string][]model.Op{}
	for _, c := range all {
		c.gone = c.over
		if c.over == math.MaxInt64 {
			continue
		}
		c.gone += int64(o.stuck())
		for _, s := range spans {
			if int64(s.From) <= c.gone && int64(s.To) >= c.over {
				c.gone = max(c.gone, int64(s.To)+int64(o.stuck()))
			}
		}
	}
	for key, cs := range byKey(all) {
		for _, c := range cs {
			covered := func() bool { return !o.Fair || slices.ContainsFunc(cs, c.mayBeRefusedFor) }
			ops[key] = append(ops[key], c.operations(covered)...)
		}
	}
	return ops
}

// mayBeRefusedFor reports whether d may have been in the way of c without holding for
// certain: from its call to its answer, and longer if it gave up, for nobody knows when the
// store heard of that. While d holds, and until its lease has run out, the model knows that
// it is in the way.
func (c *claim) mayBeRefusedFor(d *claim) bool {
	until := d.done.At
	switch {
	case d.over == math.MaxInt64 || d.broken != 0:
		until = math.MaxInt64
	case !d.held && d.done.Op != traffic.Refused:
		until = d.gone
	}
	return d != c && d.At <= c.done.At && until >= c.At
}

// op is one operation on c.
func (c *claim) op(do model.Do, call, ret int64) model.Op {
	o := model.Op{
		Do: do, Claim: c.number, Weight: model.RW, Capacity: model.RW, Call: call, Return: ret, Name: c.Claim,
	}
	switch c.Kind {
	case history.Shared:
		o.Weight = 1
	case history.Permit:
		o.Weight, o.Capacity = c.Weight, c.Size
	}
	if c.Kind == history.Exclusive {
		o.Token = c.done.Token
	}
	return o
}

func (c *claim) operations(covered func() bool) []model.Op {
	switch {
	case c.done.Op == traffic.Refused:
		o := c.op(model.Refuse, c.At, c.done.At)
		o.Covered = covered()
		return []model.Op{o}
	case c.done.Op == traffic.Late && c.broken == 0:
		return []model.Op{c.op(model.Acquire, c.At, c.done.At), c.op(model.End, c.At, c.gone)}
	case !c.held || c.voided:
		return nil // a wish of unknown outcome may be left out
	}
	ops := []model.Op{c.op(model.Acquire, c.At, c.done.At)}
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
	return append(ops, c.ends()...)
}

// ends are the releases of c, and the end of what was not released.
func (c *claim) ends() (ops []model.Op) {
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
	gone := c.gone
	if c.broken != 0 {
		gone = model.Never
	}
	return append(ops, c.op(model.End, ended, gone))
}
