package fencelock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// leaveLimit bounds one Leave. It may be longer than a third of a short lease: a
// late Leave harms nobody.
func leaveLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 500*time.Millisecond), 5*time.Second)
}

// exitTicket is cl's ticket as Leave wants it: without a token if an Enter may
// still arrive, so that the store lays the ID to rest. c.mu is held.
func (c *Client) exitTicket(cl *claim) driver.Ticket {
	t := c.ticket(cl)
	if cl.unsure {
		t.Token = 0
	}
	return t
}

// settled reports whether err, the answer to a Leave, leaves nothing to do.
func settled(err error) bool {
	return err == nil || driver.Gone(err) || errors.Is(err, driver.ErrClosed) ||
		errors.As(err, new(*driver.PermanentError))
}

// leave takes cl out of the line: it tries at least once, and until budget has
// passed, whatever becomes of ctx; then the rest is done behind. It answers nil if
// the store confirmed it, ErrGone if the store no longer had the claim, anything
// else if nobody knows yet.
func (c *Client) leave(ctx context.Context, cl *claim, e driver.Exit, budget time.Duration) error {
	c.mu.Lock()
	cl.state = ended // from here on no renewal is begun
	c.sched.drop(cl)
	t, linger := c.exitTicket(cl), e.Linger
	c.mu.Unlock()

	begun := c.clock.now()
	until := begun + int64(budget)
	doubt := false
	for now := begun; ; now = c.clock.now() {
		e.Linger = c.rest(linger, begun)
		left := time.Duration(until - now)
		call := c.detached(ctx, now, max(min(left, leaveLimit(t.TTL)), time.Millisecond))
		err := c.b.Leave(call, t, e)
		call.end()
		switch {
		case err == nil:
			return nil
		case driver.Gone(err):
			if doubt {
				return nil // an earlier try that got no answer did it, or the lease had its time
			}
			return err
		case settled(err):
			return err
		}
		doubt = true
		cl.tries++
		pause := time.Duration(until - c.clock.now())
		if back := c.o.Backoff(int(cl.tries)); back < pause && c.work.Err() == nil {
			pause = back
		} else {
			c.mu.Lock()
			c.oweLeave(cl, c.clock.now()+int64(back), e)
			c.mu.Unlock()
			return err
		}
		timer := timerFor(pause)
		<-timer.C
	}
}

// rest is what is left now of a linger that was d long at time at.
func (c *Client) rest(d time.Duration, at int64) time.Duration {
	if d <= 0 {
		return 0
	}
	if d -= time.Duration(c.clock.now() - at); d <= 0 {
		return 0
	}
	return max(d, c.info.MinTTL)
}

// quit takes cl out of the line behind the caller's back, beginning now. c.mu is held.
func (c *Client) quit(cl *claim, e driver.Exit) {
	now := c.clock.now()
	c.oweLeave(cl, now, e)
	c.sendLeave(cl, now)
}

// leavesAtOnce bounds how many Leaves are on their way behind, so that a Client that
// closes with a hundred thousand leases does not start as many goroutines.
const leavesAtOnce = 256

// sendLeave begins one try of a Leave that is owed, or puts it off for a moment.
// c.mu is held.
func (c *Client) sendLeave(cl *claim, now int64) {
	if c.leaves >= leavesAtOnce {
		cl.retryAt = now + int64(time.Millisecond)
		c.plan(cl, now)
		return
	}
	cl.exiting = true
	c.leaves++
	c.calls++
	c.plan(cl, now)
	go c.leaveAgain(cl)
}

// oweLeave puts cl down to be taken out of the line at time at. c.mu is held.
func (c *Client) oweLeave(cl *claim, at int64, e driver.Exit) {
	c.owed++
	cl.state = leaving
	if cl.seldom != nil || e != (driver.Exit{}) {
		cl.gets().exit, cl.gets().exitAt = e, c.clock.now()
	}
	cl.retryAt, cl.exiting = at, false
	cl.endAt = never
	c.plan(cl, c.clock.now())
}

// leaveAgain is one try of a Leave that is owed.
func (c *Client) leaveAgain(cl *claim) {
	call := c.detached(context.Background(), c.clock.now(), leaveLimit(cl.ttl))
	c.mu.Lock()
	t, e := c.exitTicket(cl), cl.has().exit
	e.Linger = c.rest(e.Linger, cl.has().exitAt)
	c.mu.Unlock()
	err := c.b.Leave(call, t, e)
	call.end()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
	c.leaves--
	cl.exiting = false
	now := c.clock.now()
	if settled(err) || cl.state != leaving {
		c.owed--
		cl.state = ended
	} else {
		cl.tries++
		// A store that is down is asked less and less often, down to once a lease.
		most := max(int64(cl.ttl), int64(time.Second))
		cl.retryAt = now + min(int64(c.o.Backoff(int(cl.tries)))<<min(cl.tries/8, 6), most)
	}
	c.plan(cl, now)
	c.moved()
}
