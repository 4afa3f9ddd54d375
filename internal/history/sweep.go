package history

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"
)

// sweep is the state of the world at one moment.
type sweep struct {
	o         Options
	outages   []Span // in order
	claims    map[string]*claim
	processes map[string]*process
	keys      map[string]*key
	fresh     []*claim // believed since the last settle
	found     []Violation
}

type process struct {
	crashed, paused bool
	claims          []*claim // that wait or are believed
}

// claim is one wish, from Enter on.
type claim struct {
	Event    // its Enter
	key      *key
	process  *process
	waiting  bool
	handles  map[string]bool // believed
	released int
	believed Event // when it began; nothing if it never did
	looked   Event // when it last said so
	exempt   bool  // its process was stopped and has not looked since
	over     bool
	since    time.Duration // waiting since, or since its process went on
	order    int           // of its grant among the exclusive grants of the key
	floor    Event         // the largest token known to be granted before it entered
}

func (c *claim) live() bool { return len(c.handles) > 0 }

type key struct {
	name    string
	live    []*claim // believed
	waiting []*claim

	granted Event  // the largest token granted
	ended   Event  // the largest token whose belief has ended
	grants  int    // exclusive ones
	written Event  // the accepted write of the largest token
	latest  *claim // the latest grant that wrote
	wrote   Event  // and what

	left Event   // the last confirmed release
	gone []Event // ends that nobody has confirmed
	told bool    // the present gap was reported
}

func newSweep(o Options) *sweep {
	s := &sweep{
		o: o, claims: map[string]*claim{}, processes: map[string]*process{}, keys: map[string]*key{},
	}
	s.outages = slices.SortedFunc(slices.Values(o.Outages), func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	return s
}

func (s *sweep) report(r Rule, k *key, at time.Duration, first, second Event, text string) {
	s.found = append(s.found, Violation{r, k.name, at, first, second, text})
}

// named is what has a name, and is new if nobody had it.
func named[T any](all map[string]*T, name string) *T {
	if all[name] == nil {
		all[name] = new(T)
	}
	return all[name]
}

// without takes c out.
func without(all []*claim, c *claim) []*claim {
	return slices.DeleteFunc(all, func(d *claim) bool { return d == c })
}

// apply lets one event happen.
func (s *sweep) apply(e Event) error {
	switch e.Op {
	case Crash:
		s.crash(e)
	case Pause, Resume:
		s.pause(e)
	case Enter:
		return s.enter(e)
	case Look:
	default:
		c := s.claims[e.Claim]
		if c == nil || c.Key != e.Key {
			return errors.New("no such claim: Enter comes first")
		}
		return s.applyTo(c, e)
	}
	return nil
}

// applyTo lets an event happen to a claim that has entered.
func (s *sweep) applyTo(c *claim, e Event) error {
	switch e.Op {
	case Believe:
		return s.believe(c, e)
	case Refused:
		if !c.waiting {
			return errors.New("the claim does not wait")
		}
		s.leaveLine(c, e)
	case Release:
		return s.release(c, e)
	case Left:
		c.key.left = e
		c.key.gone = slices.DeleteFunc(c.key.gone, func(g Event) bool { return g.Claim == c.Claim })
	case Loss:
		s.vanish(c, e)
	case Doubt:
		c.exempt = true
	case Write:
		s.write(c, e)
	}
	return nil
}

func (s *sweep) enter(e Event) error {
	if s.claims[e.Claim] != nil {
		return errors.New("this claim has entered before")
	}
	p, k := named(s.processes, e.Process), named(s.keys, e.Key)
	k.name = e.Key
	if p.crashed {
		return errors.New("its process was killed before")
	}
	c := &claim{Event: e, key: k, process: p, waiting: true, handles: map[string]bool{}, since: e.At, floor: k.granted}
	s.claims[e.Claim] = c
	p.claims, k.waiting = append(p.claims, c), append(k.waiting, c)
	return nil
}

func (s *sweep) believe(c *claim, e Event) error {
	if c.over {
		return errors.New("the claim has ended before")
	}
	if c.believed.Op == "" {
		s.grant(c, e)
	} else {
		s.judgeReentry(c, e)
	}
	c.looked = e
	c.exempt = c.process.paused && !s.o.Exact
	c.handles[e.Handle] = true // if it was there, it looked, and holds it still
	if !slices.Contains(s.fresh, c) {
		s.fresh = append(s.fresh, c)
	}
	return nil
}

// grant is the moment at which c is first known to be granted.
func (s *sweep) grant(c *claim, e Event) {
	k := c.key
	s.judgeGap(k, e.At)
	c.believed, c.waiting = e, false
	k.waiting, k.live = without(k.waiting, c), append(k.live, c)
	k.gone = slices.DeleteFunc(k.gone, func(g Event) bool { return g.At+s.o.Stuck < e.At })
	if c.Kind != Exclusive {
		return
	}
	k.grants++
	c.order = k.grants
	s.judgeToken(c, e)
	if e.Token > k.granted.Token {
		k.granted = e
	}
}

// leaveLine ends the waiting of c.
func (s *sweep) leaveLine(c *claim, e Event) {
	s.judgeGap(c.key, e.At)
	c.waiting = false
	c.key.waiting = without(c.key.waiting, c)
	c.end()
}

func (s *sweep) release(c *claim, e Event) error {
	if !c.handles[e.Handle] {
		if c.believed.Op == "" {
			return errors.New("the claim was never held")
		}
		return nil // released or lost before: it may be called again
	}
	delete(c.handles, e.Handle)
	c.released++
	if !c.live() {
		s.stop(c)
		c.key.gone = append(c.key.gone, e) // until it is confirmed
	}
	return nil
}

// vanish ends c without the store's word.
func (s *sweep) vanish(c *claim, e Event) {
	switch {
	case c.live():
		s.stop(c)
	case c.waiting:
		s.leaveLine(c, e)
	default:
		return
	}
	e.Claim, e.Key = c.Claim, c.Key
	c.key.gone = append(c.key.gone, e)
}

// stop ends the belief of c.
func (s *sweep) stop(c *claim) {
	k := c.key
	clear(c.handles)
	k.live = without(k.live, c)
	if c.Kind == Exclusive && c.believed.Token > k.ended.Token {
		k.ended = c.believed
	}
	k.told = false
	c.end()
}

func (c *claim) end() {
	c.over = true
	c.process.claims = without(c.process.claims, c)
}

func (s *sweep) crash(e Event) {
	p := named(s.processes, e.Process)
	p.crashed = true
	for _, c := range inOrder(p.claims) {
		s.vanish(c, e)
	}
}

// pause stops a process or lets it go on. What it holds may end in the store without
// its knowing, and what waits behind it may have to wait for that.
func (s *sweep) pause(e Event) {
	p := named(s.processes, e.Process)
	for _, c := range inOrder(p.claims) {
		s.judgeGap(c.key, e.At)
		if e.Op == Resume {
			c.since = e.At
			continue
		}
		c.exempt = c.exempt || !s.o.Exact
		c.key.gone = append(c.key.gone, Event{At: e.At, Op: e.Op, Process: e.Process, Key: c.Key, Claim: c.Claim})
	}
	p.paused = e.Op == Pause
}

// end is the end of the history.
func (s *sweep) end(at time.Duration) {
	for _, name := range slices.Sorted(maps.Keys(s.keys)) {
		s.judgeGap(s.keys[name], at)
	}
}

// inOrder sorts claims by when they entered, so that the same history gives the same
// report.
func inOrder(claims []*claim) []*claim {
	return slices.SortedFunc(slices.Values(claims), func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Claim, b.Claim))
	})
}
