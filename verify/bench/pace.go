package bench

import (
	"slices"
	"time"
)

// pace is how quick this machine was, turn by turn: how long a calculation took that is the
// same each time. Neighbours on the same hardware show there, and hardly in the load.
type pace struct {
	took []time.Duration
	sum  uint64 // so that nobody leaves the calculation out
}

// take calculates for about a millisecond.
func (p *pace) take() {
	begun := time.Now()
	x := p.sum | 1
	for range 1_000_000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	p.sum = x
	p.took = append(p.took, time.Since(begun))
}

// tell notes how many ms it took at the quickest, in the median, and in the slowest tenth
// of the turns.
func (p *pace) tell(about map[string]string) {
	if len(p.took) == 0 {
		return
	}
	slices.Sort(p.took)
	at := func(tenths int) string { return short(p.took[len(p.took)*tenths/10].Seconds() * 1000) }
	about["pace, quickest"], about["pace, median"], about["pace, slowest tenth"] = at(0), at(5), at(9)
}
