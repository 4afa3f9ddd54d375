// Package model says what one key of a lock may do, as a sequential specification for
// the linearizability checker porcupine.
//
// A grant is legal if its weight and the weights of the holders fit its capacity. A mutex and
// a writer weigh the whole capacity, a reader weighs one. The tokens of exclusive grants rise.
// Re-entry shares a grant, which ends with its last handle.
//
// A holder may be killed, lose its grant, or hear nothing of its release. The grant then ends
// at any time between the last moment at which it was known to be held and the moment at
// which its lease must have run out. A call of unknown outcome is left out, and covers the
// refusals that it may have caused: see [Op].
package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// RW is the capacity of a lock with readers and writers, and the weight of a writer.
const RW = 1 << 20

// Never is when an operation returns whose outcome nobody knows.
const Never = math.MaxInt64

// Do is what an operation does.
type Do string

// The operations.
const (
	Acquire Do = "acquire" // the claim is granted
	Refuse  Do = "refuse"  // the claim is not granted, because it would not fit
	Reenter Do = "reenter" // a claim that is granted gets one handle more
	Release Do = "release" // one handle is given back
	End     Do = "end"     // the grant ends, with all its handles
)

// Op is one operation on one key.
type Op struct {
	Do               Do
	Claim            int // a number of its own
	Weight, Capacity int64
	Token            int64 // of an exclusive grant; 0 if there are none
	// Covered says of a Refuse that somebody else may have been in the way all along: one
	// who waits, or of whom nobody knows whether the store still has its claim.
	Covered      bool
	Call, Return int64
	Name         string // for people
}

// hold is a claim that is granted.
type hold struct {
	claim   int
	weight  int64
	token   int64
	handles int
}

// state of a key: who holds it, in order of claims, and the last token. It is never
// changed.
type state struct {
	holds []hold
	last  int64
}

func (s state) find(claim int) int {
	return slices.IndexFunc(s.holds, func(h hold) bool { return h.claim == claim })
}

func (s state) fits(o Op) bool {
	sum := o.Weight
	for _, h := range s.holds {
		sum += h.weight
	}
	return sum <= o.Capacity
}

func (s state) with(h hold) state {
	at, _ := slices.BinarySearchFunc(s.holds, h, func(a, b hold) int { return a.claim - b.claim })
	s.holds = slices.Insert(slices.Clone(s.holds), at, h)
	return s
}

func (s state) without(i int) state {
	s.holds = slices.Delete(slices.Clone(s.holds), i, i+1)
	return s
}

// step is the specification.
func step(s state, o Op) (bool, state) {
	i := s.find(o.Claim)
	switch o.Do {
	case Acquire:
		if i >= 0 || !s.fits(o) || o.Token != 0 && o.Token <= s.last {
			return false, s
		}
		s.last = max(s.last, o.Token)
		return true, s.with(hold{o.Claim, o.Weight, o.Token, 1})
	case Refuse:
		return o.Covered || !s.fits(o), s
	case Reenter:
		return s.addHandles(i, o, 1)
	case Release:
		return s.addHandles(i, o, -1)
	case End:
		if i >= 0 {
			return true, s.without(i)
		}
	}
	return false, s
}

// addHandles changes how many handles share hold i, which ends with its last one.
func (s state) addHandles(i int, o Op, n int) (bool, state) {
	if i < 0 || o.Token != s.holds[i].token {
		return false, s
	}
	h := s.holds[i]
	s = s.without(i)
	if h.handles += n; h.handles > 0 {
		s = s.with(h)
	}
	return true, s
}

var spec = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, _ any) (bool, any) { return step(s.(state), in.(Op)) },
	Equal: func(a, b any) bool {
		return a.(state).last == b.(state).last && slices.Equal(a.(state).holds, b.(state).holds)
	},
	Hash: func(s any) uint64 {
		h := uint64(s.(state).last)
		for _, x := range s.(state).holds {
			h = h*1099511628211 + uint64(x.claim)*31 + uint64(x.handles)
		}
		return h
	},
	DescribeOperation: func(in, _ any) string {
		o := in.(Op)
		return fmt.Sprintf("%v %s, token %d, weight %d of %d", o.Do, o.Name, o.Token, o.Weight, o.Capacity)
	},
	DescribeState: func(s any) string { return fmt.Sprintf("%+v", s) },
}

// Verdict is what came of a check.
type Verdict = porcupine.CheckResult

// The verdicts. TimedOut is a failure like Illegal: nobody knows whether it is one.
const (
	Legal    = porcupine.Ok
	Illegal  = porcupine.Illegal
	TimedOut = porcupine.Unknown
)

func operations(ops []Op) []porcupine.Operation {
	all := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		all[i] = porcupine.Operation{ClientId: o.Claim, Input: o, Call: o.Call, Return: o.Return}
	}
	return all
}

// Check says whether the operations of one key can have happened one after the other,
// each at a moment between its call and its return. It gives up after the limit.
func Check(ops []Op, limit time.Duration) Verdict {
	return porcupine.CheckOperationsTimeout(spec, operations(ops), limit)
}

// Draw writes a page to path that shows how far the operations of a key can be put in
// order, and what stands against it.
func Draw(ops []Op, limit time.Duration, path string) error {
	// A return at infinity would leave no room for the rest. After the last call it orders nothing.
	last := slices.MaxFunc(ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) }).Call
	shown := slices.Clone(ops)
	for i := range shown {
		shown[i].Return = min(shown[i].Return, last+1)
	}
	_, info := porcupine.CheckOperationsVerbose(spec, operations(shown), limit)
	return porcupine.VisualizePath(spec, info, path)
}
