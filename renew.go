package fencelock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
)

// renewEvery is how long after the grant or a renewal of a lease the next one is sent. Two
// thirds are left then: one for the renewal, and one to repeat it.
func renewEvery(lease time.Duration) time.Duration { return lease / 3 }

// renewTimeout is how long one renewal may take.
func renewTimeout(lease time.Duration) time.Duration { return lease / 3 }

const (
	renewalBatch   = 512 // claims in one call of Backend.Renew
	renewalsAtOnce = 64  // such calls under way
)

// renewal is the claims that one call of Backend.Renew renews. Their leases have one length
// in the store.
type renewal struct {
	lease  time.Duration // the shortest that a holder counts on
	claims []*claim
}

// processDue handles every claim that is due: losses, risks, renewals and Leaves. The
// schedule's timer calls it, so the Client needs no goroutine of its own.
func (c *Client) processDue() {
	now := c.clock.Now()
	due := map[time.Duration]*renewal{} // by the length of the lease
	renews := false
	for {
		// Claims that are due soon join a renewal that is sent anyway. Leases that were taken
		// at different times come to be renewed together. When no further call may start,
		// claims that are not due stay as they are, or the loop would not end.
		cl, slack := c.schedule.Earliest(now, renews && c.renewals.Load() < renewalsAtOnce)
		if cl == nil {
			break
		}
		ttl, lease := cl.process(now, slack, c.renewals.Load() >= renewalsAtOnce)
		if lease == 0 {
			continue
		}
		renews = true
		r := due[ttl]
		if r == nil {
			r = &renewal{lease: lease}
			due[ttl] = r
		}
		r.lease = min(r.lease, lease)
		r.claims = append(r.claims, cl)
		if len(r.claims) == renewalBatch {
			c.sendRenewal(r)
			delete(due, ttl)
		}
	}
	for _, r := range due {
		c.sendRenewal(r)
	}
}

// process handles the claim if it is due at time now. If it is to be renewed, process
// returns the length of its lease, and how much of it its holder counts on; else 0. When no
// renewal may start, it puts the renewal off.
func (cl *claim) process(now, slack int64, full bool) (ttl, lease time.Duration) {
	cl.mu.Lock()
	defer cl.unlock()
	switch {
	case cl.state == stateLeaveDue:
		if now >= cl.retryAt {
			cl.sendLeaveLocked(now)
			return 0, 0
		}
	case cl.state != stateWaiting && cl.state != stateHeld, cl.lapseLocked(now):
	default:
		cl.checkStallLocked(now)
		if !cl.atRisk && now >= cl.riskAtLocked() {
			cl.riskLocked(now, nil)
		}
		switch due := cl.renewsLocked() && now+slack >= cl.retryAt; {
		case due && full:
			cl.retryAt = now + int64(cl.ttl)/60
		case due:
			cl.renewing = true
			ttl, lease = cl.ttl, cl.countedLocked(cl.ttl)
		}
	}
	cl.planLocked(now)
	return ttl, lease
}

// sendRenewal renews the claims of r on a goroutine of its own.
func (c *Client) sendRenewal(r *renewal) {
	c.renewals.Add(1)
	c.life.beginWork()
	go func() {
		defer c.life.endWork()
		defer c.renewals.Add(-1)
		tickets := make([]driver.Ticket, len(r.claims))
		for i, cl := range r.claims {
			tickets[i] = cl.ticket()
		}
		sent := c.clock.Now()
		call := c.life.renewing.Call(context.Background(), sent, renewTimeout(r.lease))
		errs := c.backend.Renew(call, tickets)
		call.End()
		now := c.clock.Now()
		for i, cl := range r.claims {
			var err error
			if i < len(errs) {
				err = errs[i]
			} else {
				err = fmt.Errorf("the backend answered %d of %d renewals", len(errs), len(r.claims))
			}
			cl.renewalAnswered(tickets[i].TTL, sent, now, err)
		}
	}()
}

// renewalAnswered notes the answer to a scheduled renewal.
func (cl *claim) renewalAnswered(ttl time.Duration, sent, now int64, err error) {
	cl.mu.Lock()
	defer cl.unlock()
	cl.renewing = false
	if done := cl.readRare().renewalDone; done != nil {
		close(done)
		cl.rare.renewalDone = nil
	}
	cl.renewedLocked(ttl, sent, now, err)
}

// renewedLocked notes the answer to any renewal.
func (cl *claim) renewedLocked(ttl time.Duration, sent, now int64, err error) {
	if cl.state != stateWaiting && cl.state != stateHeld {
		return
	}
	if cl.lapseLocked(now) {
		// The holder may have seen the end of the lease. A late success does not undo it.
		return
	}
	if driver.Gone(err) {
		reason, operator := goneDetail(err)
		cl.goneLocked(reason, lossOf(operator))
		return
	}
	margin := cl.deadline.Load() - now
	if err == nil && cl.confirmLeaseLocked(sent, now, ttl) {
		cl.atRisk = cl.stalledLocked(now)
		if cl.holder != nil {
			cl.holder.sendRenewed(now, margin)
		}
		cl.planLocked(now)
		return
	}
	if err == nil {
		err = errLate
	}
	cl.failures++
	failure := unavailable(context.Background(), err)
	pause, _ := cl.c.options.Backoff.pauseAfter(int(cl.failures), failure)
	cl.retryAt = now + min(max(int64(pause), int64(cl.ttl)/1000), int64(cl.ttl)/12)
	cl.riskLocked(now, failure)
	cl.planLocked(now)
}

// awaitRenewal waits until no renewal of the claim is under way, and at most until the given
// time. So no renewal is sent after Release has returned.
func (cl *claim) awaitRenewal(until int64) {
	cl.mu.Lock()
	if !cl.renewing {
		cl.mu.Unlock()
		return
	}
	rare := cl.writeRare()
	if rare.renewalDone == nil {
		rare.renewalDone = make(chan struct{})
	}
	done := rare.renewalDone
	cl.mu.Unlock()
	t := clock.NewTimer(time.Duration(until - cl.c.clock.Now()))
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// renewOne renews one claim.
func renewOne(ctx context.Context, b driver.Backend, t driver.Ticket) error {
	errs := b.Renew(ctx, []driver.Ticket{t})
	if len(errs) != 1 {
		return fmt.Errorf("the backend answered %d of 1 renewals", len(errs))
	}
	return errs[0]
}
