package bench

import (
	"sync/atomic"
	"time"
)

// guard stands inside of a lock and sees who comes. It is all atomic numbers, so
// that it can lie in memory that processes share.
type guard struct {
	inside   atomic.Int64 // how many are
	last     atomic.Int64 // who was the last one, as visitor counts; 0 before the first
	token    atomic.Int64 // of the last one
	leftAt   atomic.Int64 // when that one left, in ns since 1970
	over     atomic.Bool  // nothing counts any more
	grants   atomic.Int64
	passed   atomic.Int64 // grants whose holder before was another goroutine
	crossed  atomic.Int64 // … of another process
	crowded  atomic.Int64 // grants while somebody was inside: violations of mutual exclusion
	unrising atomic.Int64 // grants whose token was not above the last one
}

// visitor is who enters: a goroutine, as a number from 1, of a process, from 0.
type visitor struct {
	process, goroutine int64
	clock              bool // whether the time between processes is to be measured
}

func (v visitor) name() int64 { return v.process<<32 | v.goroutine }

// enter is called under the lock by who has waited for it since then. It answers how long
// after the last one of another process left this was, if that is what happened, and is
// asked for: of who was not waiting yet when that one left it would be no hand-over.
func (g *guard) enter(v visitor, token int64, since time.Time) (crossing time.Duration) {
	if g.inside.Add(1) != 1 && !g.over.Load() {
		g.crowded.Add(1)
	}
	if token != 0 && g.token.Swap(token) >= token && !g.over.Load() {
		g.unrising.Add(1)
	}
	before := g.last.Swap(v.name())
	g.grants.Add(1)
	if before != 0 && before != v.name() {
		g.passed.Add(1)
		if before>>32 != v.process {
			g.crossed.Add(1)
			if v.clock && since.UnixNano() < g.leftAt.Load() {
				crossing = time.Duration(time.Now().UnixNano() - g.leftAt.Load())
			}
		}
	}
	return crossing
}

// leave is called under the lock, as the last thing.
func (g *guard) leave(v visitor) {
	if v.clock {
		g.leftAt.Store(time.Now().UnixNano())
	}
	g.inside.Add(-1)
}

// violations is what must be 0.
func (g *guard) violations() float64 {
	return float64(g.crowded.Load() + g.unrising.Load())
}
