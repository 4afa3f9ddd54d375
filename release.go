package fencelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/callctx"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// Release ends the lease, and the lock passes to the next claim in line. The Context of the
// lease ends at once.
//
// The end of ctx does not stop Release, because a cancelled call must release its lock,
// too; Release uses only the values of ctx. It returns after at least one attempt, and
// after two seconds or the time left of the lease, whichever is shorter. If the store has
// not confirmed by then, the error is ErrUnavailable, and the Client repeats the release in
// the background. If the lease had ended before, the error is ErrLost with the cause.
//
// It may be called again; every call returns the first one's result. It costs one
// round trip, or none if the lock passes to a goroutine of this Client.
func (l *Lease) Release(ctx context.Context) error { return l.releaseWith(ctx, "") }

// releaseWith releases the lease and leaves mark on the line. The first call does it, and
// later calls wait for its result.
func (l *Lease) releaseWith(ctx context.Context, mark string) error {
	if l.released.CompareAndSwap(false, true) {
		defer l.releasing.Done()
		now := l.claim.c.clock.Now()
		exit, last, err := l.beginRelease(now, mark)
		if last {
			err = l.giveBack(ctx, now, exit)
		}
		l.releaseErr = err
		return err
	}
	l.releasing.Wait()
	if mark != "" && l.releaseErr == nil {
		return wrap(opOnce, l.Key(), fmt.Errorf("%w by f, before the slot could be noted", ErrReleased))
	}
	return l.releaseErr
}

// giveBack hands the claim of the lease, whose grant ended at time now, to the next goroutine
// of this process, or takes it out of the store's line. Until one of both has begun, the
// grant is counted as not ended.
func (l *Lease) giveBack(ctx context.Context, now int64, exit driver.Exit) error {
	l, cl := l.root(), l.claim
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
	renewing, err := cl.leave(ctx, exit, now, budget)
	if outcome == nextAfterLeave {
		cl.queue.wakeAfterLeave()
	}
	if renewing != nil { // no renewal is sent after Release has returned
		t := clock.NewTimer(time.Duration(now + int64(budget) - c.clock.Now()))
		defer t.Stop()
		select {
		case <-renewing:
		case <-t.C:
		}
	}
	err = cl.releaseError(l, err)
	if c.events.On != nil {
		l.endRelease(now, err)
	}
	return wrap("release", cl.key, err)
}

// releaseError says what err, the error of the Leave of a Release, means to the holder of l.
func (cl *claim) releaseError(l *Lease, err error) error {
	switch {
	case err == nil:
		return nil
	case !driver.Gone(err):
		return unavailable(context.Background(), err)
	case cl.c.clock.Now() >= cl.deadline.Load():
		return cl.loss(ErrExpired, l.token, "it ran out while it was given back")
	}
	reason := cmp.Or(goneOf(err).Reason, "it was no longer in the store when it was released")
	return cl.loss(ErrBroken, l.token, reason)
}

// staysClosedLocked reports whether the key of a lost claim is closed for a delay, which no Leave may
// cut: a LockDelay, or that of a Break whose notice has ended the claim.
func (cl *claim) staysClosedLocked() bool {
	rare := cl.readRare()
	return rare.lockDelay > 0 || rare.notice != nil && rare.lost != nil && rare.lost.by == lossByOperator
}

// leavesAtOnce is about how many background Leaves are under way at most. A Client that
// closes with a hundred thousand leases does not start as many goroutines.
const leavesAtOnce = 256

// leaveTimeout bounds one Leave. It may be longer than a third of a short lease, because a
// late Leave does no harm.
func leaveTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 500*time.Millisecond), 5*time.Second)
}

// longestTombstone bounds how long a named claim that has left may not enter again. Its name is used
// again only by a request that is repeated, so by then that request has been given up; a lease
// may last for days.
const longestTombstone = 15 * time.Minute

// tombstoneTTL is the TTL of a Leave of a named claim, which is that of the tombstone.
func tombstoneTTL(ttl time.Duration) time.Duration { return min(ttl, longestTombstone) }

// mayEnterLocked reports whether an Enter of the claim may still arrive: one of this process, or,
// of a named claim, one of another.
func (cl *claim) mayEnterLocked() bool { return cl.uncertain || cl.named }

// leaveDecided reports whether err, the result of a Leave, leaves nothing to repeat.
func leaveDecided(err error) bool {
	return err == nil || driver.Gone(err) || errors.Is(err, driver.ErrGranted) || errors.Is(err, driver.ErrClosed) ||
		errors.Is(err, driver.ErrPermanent)
}

// leave takes the claim out of the line. It tries at least once, and until budget has
// passed since start, which is now. The end of ctx does not stop it. What the store has not confirmed by then goes on
// in the background. The error is nil if the store confirmed it, GoneError if the store no
// longer had the claim, ErrGranted if e spares a grant, anything else if the outcome is
// unknown. renewing is the end of the renewal that was under way, if one was.
func (cl *claim) leave(ctx context.Context, e driver.Exit, start int64, budget time.Duration) (
	renewing <-chan struct{}, err error,
) {
	c, linger := cl.c, e.Linger
	t, e, renewing := cl.beginLeave(e)
	until, unknown := start+int64(budget), false
	for attempt, now := 1, start; ; attempt, now = attempt+1, c.clock.Now() {
		e.Linger = cl.lingerLeft(linger, start)
		timeout := max(min(time.Duration(until-now), leaveTimeout(t.TTL)), time.Millisecond)
		err := c.sendLeave(c.life.leaving.DetachedCall(ctx, now, timeout), &t, e)
		switch {
		case attempt > 1 && driver.Gone(err):
			return renewing, nil // an earlier try took the claim out, or its lease has run out
		case leaveDecided(err):
			return renewing, err
		}
		if unknown = unknown || !errors.Is(err, driver.ErrRefused); unknown {
			err = driverutil.Unsettled(err)
		}
		pause, _ := c.options.Backoff.pauseAfter(attempt, unavailable(context.Background(), err))
		if pause >= time.Duration(until-c.clock.Now()) || c.life.leaving.Err() != nil {
			cl.leaveLater(c.clock.Now()+int64(pause), attempt, e)
			return renewing, err
		}
		<-clock.NewTimer(pause).C
	}
}

func (c *Client) sendLeave(call *callctx.Call, t *driver.Ticket, e driver.Exit) error {
	defer call.End()
	return c.backend.Leave(call, *t, e)
}

// lingerLeft returns the rest of a linger that was d long at time at.
func (cl *claim) lingerLeft(d time.Duration, at int64) time.Duration {
	if d <= 0 {
		return 0
	}
	if d -= time.Duration(cl.c.clock.Now() - at); d <= 0 {
		return 0
	}
	return max(d, cl.c.info.MinTTL)
}

// leaveInBackgroundLocked takes the claim, which was not released, out of the line on a
// goroutine of its own. A named claim stays until its lease ends, for others that have its
// name: a Leave that arrives late would end their grant.
func (cl *claim) leaveInBackgroundLocked(e driver.Exit) {
	now := cl.c.clock.Now()
	if cl.named {
		cl.state = stateEnded
		cl.planLocked(now)
		return
	}
	cl.leaveLaterLocked(now, e)
	cl.sendLeaveLocked(now)
}

// leaveLaterLocked schedules a background Leave for time at.
func (cl *claim) leaveLaterLocked(at int64, e driver.Exit) {
	cl.c.life.beginWork() // until the Leave is decided
	cl.state = stateLeaveDue
	now := cl.c.clock.Now()
	if cl.rare != nil || e != (driver.Exit{}) {
		rare := cl.writeRare()
		rare.exit, rare.exitAt = e, now
	}
	cl.retryAt = at
	cl.planLocked(now)
}

// leaveNowLocked brings a scheduled Leave forward.
func (cl *claim) leaveNowLocked(now int64) {
	if cl.state == stateLeaveDue {
		cl.retryAt = min(cl.retryAt, now)
		cl.planLocked(now)
	}
}

// sendLeaveLocked begins one try of a scheduled Leave, or puts it off while too many run.
func (cl *claim) sendLeaveLocked(now int64) {
	if cl.c.leaves.Load() < leavesAtOnce {
		cl.c.leaves.Add(1)
		cl.state = stateLeaving
		go cl.tryLeave()
	} else {
		cl.retryAt = now + int64(time.Millisecond)
	}
	cl.planLocked(now)
}

func (cl *claim) tryLeave() {
	c := cl.c
	defer c.leaves.Add(-1)
	t, e := cl.scheduledLeave()
	call := c.life.leaving.Call(context.Background(), c.clock.Now(), leaveTimeout(t.TTL))
	cl.leaveAnswered(c.sendLeave(call, &t, e))
}

// leaveOld takes the call's claim, which has ended, out of the line. The error says that nobody knows whether it has
// left.
func (a *acquisition) leaveOld() error {
	if !a.claim.mayBeInLine() {
		return nil
	}
	t, e, _ := a.claim.beginLeave(driver.Exit{})
	err := a.c.sendLeave(a.call(a.c.clock.Now(), leaveTimeout(t.TTL)), &t, e)
	if leaveDecided(err) {
		return nil
	}
	return err
}

// giveUp takes the call's claim out of the line: now, if the caller has time and the store
// responds; in the background otherwise.
//
// A named claim leaves only if it still waits: a repeated call in another process may have
// returned the grant already. If the claim is granted, giveUp reports true and the call goes on
// with it. No other call can have a claim without a name, so that claim leaves also when it was
// granted a moment ago: it would keep the key closed until its lease ends.
func (a *acquisition) giveUp() (granted bool) {
	cl := a.claim
	if cl.giveUp(a.ctx.Err() != nil || a.c.life.acquiring.Err() != nil || a.lastErr != nil) {
		return false
	}
	_, err := cl.leave(a.ctx, driver.Exit{IfWaiting: cl.named}, a.c.clock.Now(), min(closeBudget, a.enterTTL/3))
	return errors.Is(err, driver.ErrGranted)
}
