package fencelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// releaseState is how far the Release of a lease has come.
type releaseState struct {
	called bool
	done   bool
	result *releaseResult // nil if the result is nil and no second call waited for it
}

type releaseResult struct {
	ready chan struct{} // closed when err is set; nil if err was set at once
	err   error
}

// Release ends the lease and lets the next one in. Its Context ends at once.
//
// The end of ctx does not stop it, because a lock must be given back also by a call that
// was cancelled; ctx only lends its values. It returns after at least one attempt, and
// after two seconds or the time left of the lease, whichever is shorter. If the
// store has not confirmed by then, the error is ErrUnavailable and the rest is done
// in the background. ErrLost says that the lease had ended before, and why.
//
// It may be called again; every call returns the first one's result. It costs one
// round trip, or none if the lock passes to a goroutine of this Client.
func (l *Lease) Release(ctx context.Context) error { return l.releaseWith(ctx, "") }

// releaseWith releases the lease and leaves mark on the line.
func (l *Lease) releaseWith(ctx context.Context, mark driver.Mark) error {
	cl := l.grant.claim
	now := cl.c.clock.now()
	switch step, exit, err := l.beginRelease(now, mark); step {
	case releasedBefore:
		return l.awaitResult(mark)
	case releaseSettled:
		return err
	default:
		return l.giveBack(ctx, now, exit)
	}
}

// releaseStep is what a call of Release has to do.
type releaseStep int

const (
	releasedBefore releaseStep = iota // wait for the result of the first call
	releaseSettled                    // nothing: the lease was over, or others share its grant
	releaseLast                       // give the claim back
)

// beginRelease ends the lease here. If its grant ends with it, the claim stays held and has
// no holder until giveBack.
func (l *Lease) beginRelease(now int64, mark driver.Mark) (releaseStep, driver.Exit, error) {
	g, cl := l.grant, l.grant.claim
	cl.mu.Lock()
	defer cl.unlock()
	if l.release.called {
		if l.release.result == nil && !l.release.done {
			l.release.result = &releaseResult{ready: make(chan struct{})}
		}
		return releasedBefore, driver.Exit{}, nil
	}
	l.release.called = true
	g.open--
	if !l.over.Load() {
		cl.lapseLocked(now)
	}
	if l.over.Load() {
		if g.open == 0 {
			cl.leaveNowLocked(now) // every holder has seen the loss, so the rest of the lease serves no purpose
		}
		return releaseSettled, driver.Exit{}, l.settleLocked(wrap("release", cl.key, l.cause))
	}
	l.endLocked(releasedError{l})
	g.remove(l)
	if mark != "" {
		cl.writeRare().leaveMark = mark
	}
	if g.leases != nil { // others still share the grant
		var err error
		if mark != "" {
			err = wrap(opOnce, cl.key,
				invalid("f shared the lease and has not released it; the slot is noted when it does"))
		}
		return releaseSettled, driver.Exit{}, l.settleLocked(err)
	}
	exit := cl.exitLocked(g, now)
	exit.Mark = cl.readRare().leaveMark
	g.over, cl.grant = true, nil
	return releaseLast, exit, nil
}

// awaitResult returns the result of the first Release.
func (l *Lease) awaitResult(mark driver.Mark) error {
	cl := l.grant.claim
	cl.mu.Lock()
	result := l.release.result
	cl.mu.Unlock()
	var err error
	if result != nil {
		if result.ready != nil {
			<-result.ready
		}
		err = result.err
	}
	if mark != "" && err == nil {
		return wrap(opOnce, cl.key, fmt.Errorf("%w by f, before the slot could be noted", ErrReleased))
	}
	return err
}

// settleLocked sets the result that every call of Release returns.
func (l *Lease) settleLocked(err error) error {
	l.release.done = true
	if l.release.result == nil && err != nil {
		l.release.result = &releaseResult{}
	}
	if r := l.release.result; r != nil {
		r.err = err
		if r.ready != nil {
			close(r.ready)
		}
	}
	return err
}

// giveBack hands the claim of the lease, whose grant ended at time now, to the next goroutine
// of this process, or takes it out of the store's line. Until one of both has begun, the
// grant is counted as not ended.
func (l *Lease) giveBack(ctx context.Context, now int64, exit driver.Exit) error {
	g, cl := l.grant, l.grant.claim
	c := cl.c
	outcome := nobodyWaits
	if cl.queue != nil {
		outcome = cl.queue.handOff(l, now)
	}
	if outcome == handedOff {
		c.life.endGrant()
		return nil
	}
	c.life.beginWork()
	defer c.life.endWork()
	c.life.endGrant()
	budget := min(time.Duration(cl.deadline.Load()-now), closeBudget)
	renewing, err := cl.leave(ctx, exit, budget)
	if outcome == nextAfterLeave {
		cl.queue.wakeAfterLeave()
	}
	if renewing {
		cl.awaitRenewal(now + int64(budget))
	}
	err = cl.releaseError(g, err)
	if errors.Is(err, ErrLost) {
		held := time.Duration(now - g.at)
		c.hooks.send(c.hooks.Lost, Event{Key: cl.key, Token: g.token, Held: held, Err: err})
	} else {
		g.sendReleased(now, err)
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return l.settleLocked(wrap("release", cl.key, err))
}

// releaseError says what err, the answer to the Leave of a Release, means to the holder of g.
func (cl *claim) releaseError(g *grant, err error) error {
	switch {
	case err == nil:
		return nil
	case !driver.Gone(err):
		return unavailable(context.Background(), err)
	case cl.c.clock.now() >= cl.deadline.Load():
		return cl.loss(ErrExpired, g.token, "it ran out while it was given back")
	}
	reason, _ := goneDetail(err)
	if reason == "" {
		reason = "it was no longer in the store when it was released"
	}
	return cl.loss(ErrBroken, g.token, reason)
}
