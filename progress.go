package fencelock

import (
	"fmt"
	"sync/atomic"
	"time"
)

// terms are what a lease was taken with, beyond the ordinary.
type terms struct {
	maxHold  int64 // when MaxHold ends the grant; never without
	minHold  time.Duration
	progress *progress // nil without Progress
	trace    string    // of Options.Trace
}

// noTerms are those of an ordinary lease. They are never written.
var noTerms = terms{maxHold: never}

// termsOf returns the terms of a grant to the call a at time now.
func termsOf(a *acquisition, now int64) *terms {
	if a.maxHold <= 0 && a.minHold <= 0 && a.progress <= 0 && a.trace == "" {
		return &noTerms
	}
	t := &terms{maxHold: never, minHold: a.minHold, trace: a.trace}
	if a.maxHold > 0 && int64(a.maxHold) < never-now {
		t.maxHold = now + int64(a.maxHold)
	}
	if a.progress > 0 {
		t.progress = &progress{limit: int64(a.progress)}
		t.progress.last.Store(now)
	}
	return t
}

// bounded reports whether there is a bound that only this process keeps.
func (t *terms) bounded() bool { return t.maxHold != never || t.minHold > 0 || t.progress != nil }

// progress holds the state of a grant with the option Progress. limit never changes.
//
// A Tick does not take the mutex of the claim, so it may come while the watchdog decides
// that the holder is stalled. tick stores its time and then reads stalled; beginStall
// stores stalled and then reads the time again. So one of the two sees the other.
type progress struct {
	limit   int64
	last    atomic.Int64 // time of the last Tick; the grant counts as the first
	stalled atomic.Bool  // reported; written under the mutex of the claim
}

// stallAt returns when the holder is stalled unless it ticks before. A nil p is a grant without
// the option Progress.
func (p *progress) stallAt() int64 {
	if p == nil {
		return never
	}
	last := p.last.Load()
	if p.limit >= never-last {
		return never
	}
	return last + p.limit
}

// tick notes a Tick at time now, unless a later one is noted: the goroutine of this Tick
// may have been paused since it read the clock. It reports whether a stall was noted.
func (p *progress) tick(now int64) (stalled bool) {
	for {
		last := p.last.Load()
		if now <= last || p.last.CompareAndSwap(last, now) {
			return p.stalled.Load()
		}
	}
}

// beginStall notes a stall that begins by time now, and reports whether one does. The mutex
// of the claim is held.
func (p *progress) beginStall(now int64) bool {
	if p == nil || p.stalled.Load() || now < p.stallAt() {
		return false
	}
	p.stalled.Store(true)
	if now < p.stallAt() { // a Tick came meanwhile, and may not have seen the stall
		p.stalled.Store(false)
		return false
	}
	return true
}

// renews reports whether the watchdog is to renew the lease.
func (p *progress) renews() bool { return p == nil || !p.stalled.Load() }

func (p *progress) detail() string {
	return fmt.Sprintf("no Tick came within %v", time.Duration(p.limit))
}

// Tick reports that the work under the lease makes progress (see the option Progress). If
// the lease is at risk because no Tick came in time, it is renewed at once, in the
// background. After the end of the lease, and without Progress, Tick does nothing. It does
// not wait for a request, so it may be called at every step of the work.
func (l *Lease) Tick() {
	cl, p := l.claim, l.terms.progress
	if p == nil {
		return
	}
	now := cl.c.clock.Now()
	if now >= cl.deadline.Load() {
		return // too late; the cause of the loss stays what it is
	}
	if p.tick(now) {
		cl.resume(l.root())
	}
}

// progressLocked is the progress of the present grant, or nil.
func (cl *claim) progressLocked() *progress {
	if cl.holder == nil {
		return nil
	}
	return cl.holder.terms.progress
}

// stalledLocked reports whether the holder is stalled at time now.
func (cl *claim) stalledLocked(now int64) bool { return now >= cl.progressLocked().stallAt() }

// checkStallLocked reports the holder by EventAtRisk when it begins to be stalled. From then
// on the claim is not renewed until the next Tick.
func (cl *claim) checkStallLocked(now int64) {
	if p := cl.progressLocked(); p.beginStall(now) {
		cl.atRisk = true
		cl.holder.sendAtRisk(now, fmt.Errorf("%w: %s", ErrStalled, p.detail()))
	}
}
