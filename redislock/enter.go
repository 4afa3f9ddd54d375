package redislock

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

const entering = "entering the line of"

// lateDelivery is how long a network may deliver the first copy of an Enter that was sent
// again: Linux sends what a closed connection has not delivered for a quarter of an hour.
// Until then the Leave of the claim writes a tombstone.
const lateDelivery = 20 * time.Minute

// Enter joins the line of c.Key, in one request.
//
// enterRequest makes the arguments of script/enter.lua, and transport.do sends them: by direct from this goroutine, or
// by a queue together with the requests of others. Either way call.prepare makes the command. The server runs
// script/prelude.lua to its end, where each calls the function enter for each lock of the call. parseTicket reads the
// answer. For a claim that waits, waiters keeps it until the subscriber receives the grant.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return b.enter(ctx, c, false)
}

// enter implements Enter, and Reenter of a claim that the server has lost.
func (b *Backend) enter(ctx context.Context, c driver.Claim, reenter bool) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	if err := c.Validate(b.Info()); err != nil {
		return driver.Ticket{}, err
	}
	if c.Ballot != 0 && !b.IsMember() {
		return driver.Ticket{}, errNoMember
	}
	if !c.NoWait {
		// A push may overtake the answer.
		b.waiters.expect(c.ID)
	}
	epoch := b.subscriber.epoch.Load()
	sent := time.Now()
	got := b.transport.do(ctx, b.enterRequest(&c, reenter))
	if got.answer == nil {
		b.waiters.forget(c.ID)
		return driver.Ticket{}, b.answered(ctx, entering, c.Key, got)
	}
	if got.repeated {
		id := c.ID
		b.repeated.Store(id, true)
		time.AfterFunc(lateDelivery, func() { b.repeated.Delete(id) })
	}
	t, soonest, ok := parseTicket(c, got.answer)
	if !ok {
		return driver.Ticket{}, b.refused(ctx, c, got)
	}
	t.TTL, t.WaitTTL = driverutil.Lease(&c, t.Granted), 0
	if got.err != nil {
		// Too few replicas know of the claim. If it cannot leave either, that is left to the caller, as
		// after any Enter whose outcome is unknown.
		b.waiters.forget(c.ID)
		_ = b.transport.do(ctx, b.leaveRequest(driver.Ticket{Claim: c}, driver.Exit{}))
		return driver.Ticket{}, b.answered(ctx, entering, c.Key, got)
	}
	if t.Granted {
		b.waiters.forget(c.ID)
		b.listen()
		return t, nil
	}
	b.waiters.setStanding(c.ID, epoch, &t, sent, time.Now().Add(soonest))
	b.subscriber.open()
	return t, nil
}

// enterRequest runs script/enter.lua. A member of a quorum gets what it needs to judge a ballot, too.
func (b *Backend) enterRequest(c *driver.Claim, reenter bool) *request {
	size, weight := wholeLock, c.Weight
	if c.Capacity != driver.RW {
		size = c.Capacity
	}
	if weight == c.Capacity {
		weight = 0 // the last arguments that are 0 are not sent
	}
	r := b.request(enterScript, c.Key, c.ID, c.TTL.Microseconds(), claimTail(c, b.process), c.Span, size, weight,
		digit(c.NoWait), c.After, c.WaitTTL.Microseconds())
	r.durable = true
	if c.Ballot != 0 {
		b.vote(r, c.Ballot, reenter)
	}
	return r
}

// refused returns why the server gave no ticket.
func (b *Backend) refused(ctx context.Context, c driver.Claim, got *request) error {
	b.waiters.forget(c.ID)
	err := refusal(&c, got.answer)
	if got.repeated && !driver.Gone(err) && !errors.Is(err, driver.ErrReused) {
		// The other copy of the request may arrive when the lock is free. A claim that was
		// refused does not leave by itself.
		if err := b.Leave(ctx, driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}); err != nil && !driver.Gone(err) {
			return err
		}
	}
	return err
}

// refusal reads why the script enter gave no ticket.
func refusal(c *driver.Claim, answer any) error {
	s, _ := answer.(string)
	f := fields{rest: s}
	switch kind := f.take(1); {
	case kind == "k":
		if size, err := strconv.ParseInt(f.rest, 10, 64); err == nil {
			return cmp.Or(driverutil.CheckKind(c.Capacity, size), driver.ErrKind)
		}
	case s == "o":
		return driver.ErrReused
	case kind == "x":
		return parseGone(s)
	case kind == "n":
		if busy := f.busy(int(min(f.number(" "), math.MaxInt32))); !f.bad {
			return busy
		}
	}
	return ballotRefusal(entering, c.Key, answer)
}
