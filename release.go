package fencelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
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
func (l *Lease) releaseWith(ctx context.Context, mark driver.Mark) error {
	if l.released.CompareAndSwap(false, true) {
		defer l.releasing.Done()
		l.releaseErr = l.releaseOnce(ctx, mark)
		return l.releaseErr
	}
	l.releasing.Wait()
	if mark != "" && l.releaseErr == nil {
		return wrap(opOnce, l.Key(), fmt.Errorf("%w by f, before the slot could be noted", ErrReleased))
	}
	return l.releaseErr
}

// releaseOnce is the first call of Release.
func (l *Lease) releaseOnce(ctx context.Context, mark driver.Mark) error {
	now := l.claim.c.clock.Now()
	exit, last, err := l.beginRelease(now, mark)
	if !last {
		return err
	}
	return l.giveBack(ctx, now, exit)
}

// beginRelease ends the lease here. If its grant ends with it, last is true, and the claim
// stays held and has no holder until giveBack. Otherwise err is the result of Release.
func (l *Lease) beginRelease(now int64, mark driver.Mark) (exit driver.Exit, last bool, err error) {
	held, cl := l.root(), l.claim
	cl.mu.Lock()
	defer cl.unlock()
	held.open--
	if l.ended() == nil {
		cl.lapseLocked(now)
	}
	if lost := l.ended(); lost != nil {
		if held.open == 0 && cl.readRare().lockDelay == 0 {
			cl.leaveNowLocked(now) // every holder has seen the loss, so the rest of the lease serves no purpose
		}
		return exit, false, wrap("release", cl.key, lost)
	}
	l.ctx.end(releasedError{l})
	if mark != "" {
		cl.writeRare().exit.Mark = mark
	}
	if held.open > 0 { // others still share the grant
		if mark != "" {
			err = wrap(opOnce, cl.key,
				invalid("f shared the lease and has not released it; the slot is noted when it does"))
		}
		return exit, false, err
	}
	exit = cl.exitLocked(held, now)
	exit.Mark = cl.readRare().exit.Mark
	held.endHoldLocked()
	return exit, true, nil
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
	renewing, err := cl.leave(ctx, exit, budget)
	if outcome == nextAfterLeave {
		cl.queue.wakeAfterLeave()
	}
	if renewing {
		cl.awaitRenewal(now + int64(budget))
	}
	err = cl.releaseError(l, err)
	end := EventReleased
	if errors.Is(err, ErrLost) {
		end = EventLost
	}
	cl.mu.Lock()
	l.sendEnd(end, now, err)
	cl.mu.Unlock()
	return wrap("release", cl.key, err)
}

// releaseError says what err, the answer to the Leave of a Release, means to the holder of l.
func (cl *claim) releaseError(l *Lease, err error) error {
	switch {
	case err == nil:
		return nil
	case !driver.Gone(err):
		return unavailable(context.Background(), err)
	case cl.c.clock.Now() >= cl.deadline.Load():
		return cl.loss(ErrExpired, l.token, "it ran out while it was given back")
	}
	reason, _ := goneDetail(err)
	if reason == "" {
		reason = "it was no longer in the store when it was released"
	}
	return cl.loss(ErrBroken, l.token, reason)
}
