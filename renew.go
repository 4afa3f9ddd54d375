package fencelock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// renewEvery returns the time from the grant or a renewal of a lease to the next renewal. Two
// thirds are left then: one for the renewal, and one to repeat it.
func renewEvery(lease time.Duration) time.Duration { return lease / 3 }

// renewTimeout returns the time that one renewal may take.
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
	done   chan struct{} // closed when the call has ended
}

// renewals are those that are not sent yet, by the length of the lease.
type renewals map[time.Duration]*renewal

// add adds a claim, whose holder counts on lease of its ttl, and sends a renewal that is full. It
// returns the channel that is closed when the claim's renewal has ended.
func (rs renewals) add(cl *claim, ttl, lease time.Duration) <-chan struct{} {
	r := rs[ttl]
	if r == nil {
		r = &renewal{lease: lease, done: make(chan struct{})}
		rs[ttl] = r
	}
	r.lease = min(r.lease, lease)
	r.claims = append(r.claims, cl)
	if len(r.claims) == renewalBatch {
		delete(rs, ttl)
		cl.c.sendRenewal(r)
	}
	return r.done
}

// processDue handles every claim that is due: losses, risks, renewals and Leaves. The
// schedule's timer calls it, so the Client needs no goroutine of its own.
func (c *Client) processDue() {
	now := c.clock.Now()
	due := renewals{}
	for renews := false; ; renews = renews || len(due) > 0 {
		// Claims that are due soon join a renewal that is sent anyway. Leases that were taken
		// at different times come to be renewed together. When no further call may start,
		// claims that are not due stay as they are, or the loop would not end.
		full := c.renewals.Load() >= renewalsAtOnce
		cl, slack := c.schedule.Earliest(now, renews && !full)
		if cl == nil {
			break
		}
		if full {
			cl.process(now, slack, nil)
		} else {
			cl.process(now, slack, due)
		}
	}
	for _, r := range due {
		c.sendRenewal(r)
	}
}

// sendRenewal renews the claims of r on a goroutine of its own.
func (c *Client) sendRenewal(r *renewal) {
	c.renewals.Add(1)
	c.life.beginWork()
	go func() {
		defer c.life.endWork()
		defer c.renewals.Add(-1)
		defer close(r.done)
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
			err := errShort
			if i < len(errs) {
				err = errs[i]
			}
			cl.renewalAnswered(tickets[i].TTL, sent, now, err)
		}
	}()
}

// errShort is of a backend that breaks its contract.
var errShort = errors.New("the backend answered fewer renewals than it was given")

func renewOne(ctx context.Context, b driver.Backend, t driver.Ticket) error {
	errs := b.Renew(ctx, []driver.Ticket{t})
	if len(errs) != 1 {
		return errShort
	}
	return errs[0]
}
