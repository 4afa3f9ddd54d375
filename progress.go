package fencelock

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/internal/stall"
)

// terms are what a lease was taken with, beyond the ordinary.
type terms struct {
	maxHold  int64 // when MaxHold ends the grant; never without
	minHold  time.Duration
	progress *stall.Progress // nil without Progress
	trace    string          // of Options.Trace
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
		t.progress = stall.New(a.progress, now)
	}
	return t
}

// bounded reports whether there is a bound that only this process keeps.
func (t *terms) bounded() bool { return t.maxHold != never || t.minHold > 0 || t.progress != nil }

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
	if p.Tick(now) {
		cl.resume(l.root())
	}
}

func (cl *claim) progressLocked() *stall.Progress {
	if cl.holder == nil {
		return nil
	}
	return cl.holder.terms.progress
}

func (cl *claim) stalledLocked(now int64) bool { return now >= cl.progressLocked().At() }

// checkStallLocked reports the holder by EventAtRisk when it begins to be stalled. From then
// on the claim is not renewed until the next Tick.
func (cl *claim) checkStallLocked(now int64) {
	if p := cl.progressLocked(); p.Begin(now) {
		cl.atRisk = true
		cl.holder.sendAtRisk(now, fmt.Errorf("%w: %s", ErrStalled, p))
	}
}
