package fencelock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// terms are what a lease was taken with, beyond the ordinary.
type terms struct {
	maxHold  int64 // when MaxHold ends the grant; never without
	minHold  time.Duration
	progress *progress // nil without Progress
	traced   string    // of Options.Trace
}

// termsOf returns the terms of a grant to the call a at time now, or nil.
func termsOf(a *acquisition, now int64) *terms {
	if a.maxHold <= 0 && a.minHold <= 0 && a.progress <= 0 && a.trace == "" {
		return nil
	}
	t := &terms{maxHold: never, minHold: a.minHold, traced: a.trace}
	if a.maxHold > 0 && int64(a.maxHold) < never-now {
		t.maxHold = now + int64(a.maxHold)
	}
	if a.progress > 0 {
		t.progress = &progress{limit: int64(a.progress)}
		t.progress.last.Store(now)
	}
	return t
}

// endAt returns when MaxHold ends the grant.
func (t *terms) endAt() int64 {
	if t == nil {
		return never
	}
	return t.maxHold
}

// bounded reports whether there is a bound that only this process keeps.
func (t *terms) bounded() bool {
	return t != nil && (t.maxHold != never || t.minHold > 0 || t.progress != nil)
}

// trace holds the result of Options.Trace for the call.
func (t *terms) trace() string {
	if t == nil {
		return ""
	}
	return t.traced
}

// event returns an event of the grant of l. The mutex of the claim is held.
func (l *Lease) event() Event {
	cl := l.claim
	e := Event{Context: l.ctx.parent, Key: cl.key}
	rare := cl.readRare()
	e.Token, e.Owner, e.Note, e.Trace = l.token, rare.owner, rare.note, rare.trace
	e.setKind(int64(cl.capacity), int64(cl.weight))
	return e
}

// endHoldLocked notes that the grant of l is over: its claim has no holder.
func (l *Lease) endHoldLocked() {
	l.claim.holder = nil
}

// held reports whether the grant that l has or shares has not ended.
func (l *Lease) held() bool {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	return l.heldLocked()
}

func (l *Lease) heldLocked() bool { return l.claim.holder == l.root() }

// grantTo gives the claim to the call a. The outcome is gone if the claim was lost meanwhile,
// refused if the Client is closed, and retry if the lease must be renewed first: less than two
// thirds of it are left, or it is not of its full length yet. A claim under notice is not renewed.
func (cl *claim) grantTo(a *acquisition) step {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := cl.c.clock.Now()
	switch {
	case !cl.c.life.open(): // Close may have ended all grants already
		return refuse(ErrClosed)
	case cl.state != stateHeld:
		return step{outcome: outcomeGone}
	case cl.readRare().notice == nil &&
		(cl.deadline.Load()-now < 2*believed(cl.countedLocked(cl.ttl))/3 || a.short):
		return step{outcome: outcomeRetry}
	}
	return step{lease: cl.grantLocked(a, now, false)}
}

// grantLocked gives the claim, which is held, to the call a.
func (cl *claim) grantLocked(a *acquisition, now int64, handoff bool) *Lease {
	if cl.used == 0 {
		cl.turnStart = now
	}
	l := &Lease{claim: cl, token: fence.Token(cl.token + int64(cl.used)), at: now, terms: termsOf(a, now)}
	l.begin(a.ctx)
	cl.used++
	cl.holder, l.open = l, 1
	cl.c.life.grants.Add(1)
	if l.terms.bounded() {
		cl.planLocked(now)
	}
	if events := &cl.c.events; events.on != nil {
		e := l.event()
		e.Wait, e.Took, e.Handoff, e.HeldBy = a.waitNumber, time.Duration(now-a.start), handoff, a.inTheWay
		events.send(EventAcquired, e)
	}
	if cl.readRare().notice != nil { // given before the call had the grant
		l.revokeLocked(now)
	}
	return l
}

// begin prepares l for a caller under ctx.
func (l *Lease) begin(ctx context.Context) {
	l.releasing.Add(1)
	l.ctx.lease, l.ctx.outer, l.ctx.parent = l, innermostHold(ctx), ctx
}

// shareLocked returns a lease on the grant of l for a caller under ctx.
func (l *Lease) shareLocked(ctx context.Context) *Lease {
	if l.shared == nil {
		l.shared = &builtCtx{}
		l.shared.Context, l.shared.cancel = context.WithCancelCause(context.Background())
	}
	l.open++
	share := &Lease{claim: l.claim, parent: l, token: l.token, at: l.at, terms: l.terms}
	share.begin(ctx)
	context.AfterFunc(l.shared, func() { _ = share.ended() })
	return share
}

// shareGrant returns a new lease on the grant of held, or nil if that is over.
func (a *acquisition) shareGrant(held *Lease) (*Lease, error) {
	cl := held.claim
	cl.mu.Lock()
	defer cl.unlock()
	switch {
	case !held.heldLocked() || cl.lapseLocked(a.c.clock.Now()):
		return nil, nil
	case a.capacity != int64(cl.capacity):
		return nil, driverutil.CheckKind(a.capacity, int64(cl.capacity))
	case !a.reentrant || a.weight > int64(cl.weight):
		return nil, fmt.Errorf("this context already holds the key: %w", ErrDeadlock)
	case held.detaches:
		return nil, fmt.Errorf("the lease of %s is not shared any more: %w", printable(a.key), ErrDetached)
	case a.claimID != "" && a.claimID != cl.id:
		return nil, invalid("the lease of %s is shared, and its claim has another ClaimID", printable(a.key))
	case a.ownLease():
		return nil, invalid("the lease of %s is shared: TTL, NoRenewal, MaxHold, MinHold, Progress "+
			"and LockDelay belong to the outer call", printable(a.key))
	}
	return held.shareLocked(a.ctx), nil
}

// endGrantLocked ends the grant of l, and all leases on it, with cause.
func (cl *claim) endGrantLocked(l *Lease, cause error) {
	l.ctx.end(cause)
	if l.shared != nil {
		l.shared.cancel(cause)
	}
	l.sendEnd(EventLost, cl.c.clock.Now(), cause)
	l.endHoldLocked()
	cl.c.life.endGrant()
}

// sendEnd reports that the grant of l has ended at time now: EventReleased or EventLost.
// The mutex of the claim is held.
func (l *Lease) sendEnd(t EventType, now int64, err error) {
	c := l.claim.c
	if c.events.on == nil {
		return
	}
	e := l.event()
	e.Time = time.Now().Add(time.Duration(now - c.clock.Now())) // the store's response took time
	e.Took, e.Err = time.Duration(now-l.at), err
	var loss *lossError
	if errors.As(err, &loss) {
		e.Reason = loss.detail
	}
	c.events.send(t, e)
}

// sendRenewed reports that the lease was renewed when margin of it was left.
func (l *Lease) sendRenewed(margin time.Duration) {
	events := &l.claim.c.events
	if events.on == nil {
		return
	}
	e := l.event()
	e.Left = margin
	events.send(EventRenewed, e)
}

// sendAtRisk reports how much of the lease is left. The mutex of the claim is held.
func (l *Lease) sendAtRisk(now int64, err error) {
	events := &l.claim.c.events
	if events.on == nil {
		return
	}
	e := l.event()
	e.Left, e.Err = time.Duration(l.claim.deadline.Load()-now), err
	events.send(EventAtRisk, e)
}

// exitLocked returns how the claim leaves the line at time now, when the grant of l has ended.
func (cl *claim) exitLocked(l *Lease, now int64) driver.Exit {
	var e driver.Exit
	if l.terms == nil || l.terms.minHold <= 0 {
		return e
	}
	if left := l.terms.minHold - time.Duration(now-l.at); left > 0 {
		e.Linger = max(left, cl.c.info.MinTTL)
	}
	return e
}

// dropMinHold lets the key be free as soon as the lease is released.
func (l *Lease) dropMinHold() {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	if l.terms != nil {
		l.terms.minHold = 0
	}
}

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
	cl := l.claim
	p := l.terms.progressOf()
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
	return cl.holder.terms.progressOf()
}

// progressOf returns the progress, or nil without the option.
func (t *terms) progressOf() *progress {
	if t == nil {
		return nil
	}
	return t.progress
}

// stalledLocked reports whether the holder is stalled at time now.
func (cl *claim) stalledLocked(now int64) bool { return now >= cl.progressLocked().stallAt() }

// checkStallLocked reports the holder by EventAtRisk when it begins to be stalled. From then
// on the claim is not renewed until the next Tick.
func (cl *claim) checkStallLocked(now int64) {
	p := cl.progressLocked()
	if !p.beginStall(now) {
		return
	}
	cl.atRisk = true
	cl.holder.sendAtRisk(now, fmt.Errorf("%w: %s", ErrStalled, p.detail()))
}

// resume has the claim of l, whose holder ticked after it was stalled, renewed at once.
func (cl *claim) resume(l *Lease) {
	cl.mu.Lock()
	defer cl.unlock()
	now := cl.c.clock.Now()
	if !l.heldLocked() || cl.lapseLocked(now) || l.terms.progress.renews() || cl.stalledLocked(now) {
		return
	}
	l.terms.progress.stalled.Store(false)
	cl.atRisk = now >= cl.riskAtLocked()
	cl.retryAt = now
	cl.planLocked(now)
}

// Revoked returns a channel that is closed when the holder hears of a Break with a Notice: at once
// if the backend pushes or the Break was of this Client, else with the next renewal. The holder
// should finish its work and release the lease before Lease.Deadline, which the notice sets. Then the
// lease ends with ErrBroken. Its claim is not handed on inside its process. A renewal changes neither.
//
// It costs no round trip. A lease with NoRenewal hears only from a backend that pushes, and by Renew.
// The end of the lease does not close the channel, so wait for Context().Done(), too. All leases
// that share a grant share the channel.
func (l *Lease) Revoked() <-chan struct{} {
	l = l.root()
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	if l.revoked == nil {
		l.revoked = make(chan struct{})
	}
	return l.revoked
}

// Revocation returns the reason and the end of the notice that has closed Revoked. The end is zero
// if there was none. It costs no round trip.
func (l *Lease) Revocation() (reason string, end time.Time) {
	cl := l.claim
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if l = l.root(); !l.wasRevoked {
		return "", time.Time{}
	}
	n := cl.rare.notice
	return n.reason, cl.c.clock.Wall(n.end)
}

// revokeLocked tells the holder, which has the grant, of the notice of its claim.
func (l *Lease) revokeLocked(now int64) {
	if l.revoked == nil {
		l.revoked = make(chan struct{})
	}
	l.wasRevoked = true
	close(l.revoked)
	if events := &l.claim.c.events; events.on != nil {
		e, n := l.event(), l.claim.rare.notice
		e.Reason, e.Left = n.reason, time.Duration(n.end-now)
		events.send(EventRevoked, e)
	}
}
