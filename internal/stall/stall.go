// Package stall tells whether work makes progress, by the ticks that it sends.
package stall

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/clock"
)

// Progress is stalled when no Tick came for as long as its limit. A nil Progress has no limit.
//
// A Tick takes no mutex, so it may come while Begin decides that the work is stalled. Tick stores its
// time and then reads stalled; Begin stores stalled and then reads the time again. So one of the two
// sees the other.
type Progress struct {
	limit   int64
	last    atomic.Int64
	stalled atomic.Bool // noted; written by one goroutine at a time
}

// New returns the Progress of work that begins at time now.
func New(limit time.Duration, now int64) *Progress {
	p := &Progress{limit: int64(limit)}
	p.last.Store(now)
	return p
}

// At returns when the work is stalled unless it ticks before.
func (p *Progress) At() int64 {
	if p == nil {
		return clock.Never
	}
	last := p.last.Load()
	if p.limit >= clock.Never-last {
		return clock.Never
	}
	return last + p.limit
}

// Tick notes a tick at time now, unless a later one is noted: its goroutine may have been paused
// since it read the clock. It reports whether a stall was noted.
func (p *Progress) Tick(now int64) (stalled bool) {
	for {
		last := p.last.Load()
		if now <= last || p.last.CompareAndSwap(last, now) {
			return p.stalled.Load()
		}
	}
}

// Begin notes a stall that begins by time now, and reports whether one does.
func (p *Progress) Begin(now int64) bool {
	if p == nil || p.stalled.Load() || now < p.At() {
		return false
	}
	p.stalled.Store(true)
	if now < p.At() { // a Tick came meanwhile, and may not have seen the stall
		p.stalled.Store(false)
		return false
	}
	return true
}

// Stalled reports whether a stall is noted.
func (p *Progress) Stalled() bool { return p != nil && p.stalled.Load() }

// End forgets the stall.
func (p *Progress) End() { p.stalled.Store(false) }

// String says what the work has failed to do.
func (p *Progress) String() string {
	return fmt.Sprintf("no Tick came within %v", time.Duration(p.limit))
}
