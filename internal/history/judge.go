package history

import (
	"slices"
	"time"
)

// judgeToken: tokens of exclusive grants rise. Two grants are compared only if their
// order is beyond doubt: the first was known before the second entered, or its belief
// had ended before the second was granted.
func (s *sweep) judgeToken(c *claim, e Event) {
	if e.Token == 0 {
		return
	}
	first := c.floor
	if c.key.ended.Token > first.Token {
		first = c.key.ended
	}
	if first.Token >= e.Token {
		s.report(Tokens, c.key, e.At, first, e, "a later grant has a token that is not larger")
	}
}

// judgeReentry: a re-entry shares the grant, and so its token.
func (s *sweep) judgeReentry(c *claim, e Event) {
	if e.Token != 0 && e.Token != c.believed.Token {
		s.report(Tokens, c.key, e.At, c.believed, e, "a re-entry has another token than its grant")
	}
}

// write: the resource never lets an earlier grant in after a later one. Tokens say
// which is which; without them, the order of the grants does.
func (s *sweep) write(c *claim, e Event) {
	k := c.key
	if c.Kind != Exclusive {
		return
	}
	switch {
	case e.Token != 0 && e.Token < k.written.Token:
		s.report(Fence, k, e.At, k.written, e, "the resource accepted a token below the largest that it has seen")
	case e.Token == 0 && k.latest != nil && c.order < k.latest.order:
		s.report(Fence, k, e.At, k.wrote, e, "the resource accepted a write without a token from an earlier holder")
	}
	if e.Token >= k.written.Token {
		k.written = e
	}
	if k.latest == nil || c.order >= k.latest.order {
		k.latest, k.wrote = c, e
	}
}

// settle judges the beliefs that began in this instant and have not ended in it.
func (s *sweep) settle() {
	for i, c := range s.fresh {
		if c.live() && !c.exempt {
			s.judgeOverlap(c, s.fresh[i+1:])
			s.judgeWeight(c)
		}
	}
	s.fresh = s.fresh[:0]
}

// judgeOverlap compares c with what is believed beside it, but for those that are
// judged later.
func (s *sweep) judgeOverlap(c *claim, later []*claim) {
	for _, d := range inOrder(c.key.live) {
		if d == c || d.exempt || slices.Contains(later, d) || c.Kind != Exclusive && d.Kind != Exclusive {
			continue
		}
		rule, text := Exclusion, "two hold what only one can hold"
		switch {
		case d.released > 0:
			rule, text = Reentrancy, "a grant of which not all handles are released was given to another"
		case c.Kind == Shared || d.Kind == Shared:
			rule, text = ReadWrite, "a writer is not alone"
		}
		s.report(rule, c.key, c.looked.At, d.believed, c.looked, text)
		return
	}
}

// judgeWeight: the permits held fit the largest size in use.
func (s *sweep) judgeWeight(c *claim) {
	if c.Kind != Permit {
		return
	}
	k, size := c.key, c.Size
	for _, d := range slices.Concat(k.live, k.waiting) {
		size = max(size, d.Size)
	}
	weight, first := int64(0), Event{}
	for _, d := range inOrder(k.live) {
		if d.Kind != Permit || d.exempt {
			continue
		}
		weight += d.weight()
		if d != c && first.Op == "" {
			first = d.believed
		}
	}
	if weight > size {
		s.report(Semaphore, k, c.looked.At, first, c.looked, "more permits are held than there are")
	}
}

// gap is a time in which somebody waits and nobody holds.
type gap struct {
	rule       Rule
	first      Event // what the waiter has waited for since
	limit, due time.Duration
}

// judgeGap: nobody holds k, somebody waits, and it takes too long. It is called
// before what may end the gap.
func (s *sweep) judgeGap(k *key, at time.Duration) {
	waiter := k.first()
	if k.told || waiter == nil || k.held() {
		return
	}
	g := s.excuse(k, s.gapBefore(k, waiter))
	if g.limit == 0 || at <= g.due {
		return
	}
	k.told = true
	text := "the key was released, and a waiter was not told"
	if g.rule == Stuck {
		text = "its holder is gone, and a waiter does not get the key"
	}
	second := Event{At: at, Op: Look, Process: waiter.Process, Key: k.name, Claim: waiter.Claim}
	s.report(g.rule, k, g.due, g.first, second, text)
}

// held reports whether a process that runs believes to hold k.
func (k *key) held() bool {
	return slices.ContainsFunc(k.live, func(c *claim) bool { return !c.process.paused })
}

// gapBefore is the gap that a grant to waiter would end now.
func (s *sweep) gapBefore(k *key, waiter *claim) gap {
	g := gap{WakeUp, waiter.Event, s.o.Wake, waiter.since + s.o.Wake}
	if k.left.At+s.o.Wake > g.due {
		g.first, g.due = k.left, k.left.At+s.o.Wake
	}
	for _, e := range k.gone {
		if s.o.Stuck == 0 || e.At+s.o.Stuck >= g.due {
			g = gap{Stuck, e, s.o.Stuck, e.At + s.o.Stuck}
		}
	}
	if g.rule == Stuck && s.o.Wake == 0 {
		// Nothing is promised after a release: what a claim that vanished long ago may have
		// delayed is judged from the last release, and from when the waiter came.
		g.due = max(g.due, waiter.since+s.o.Stuck, k.left.At+s.o.Stuck)
	}
	return g
}

// excuse lets a gap that touches an outage last for Stuck after its end.
func (s *sweep) excuse(k *key, g gap) gap {
	since := g.due - g.limit
	for _, out := range s.outages {
		if out.Key != "" && out.Key != k.name {
			continue
		}
		if out.From <= g.due && out.To >= since && out.To+s.o.Stuck > g.due {
			g.rule, g.limit, g.due = Stuck, s.o.Stuck, out.To+s.o.Stuck
		}
	}
	return g
}

// first is who has waited longest, of those that can take what they are given.
func (k *key) first() *claim {
	var first *claim
	for _, c := range k.waiting {
		if c.process.paused {
			continue
		}
		if first == nil || c.since < first.since || c.since == first.since && c.Claim < first.Claim {
			first = c
		}
	}
	return first
}
