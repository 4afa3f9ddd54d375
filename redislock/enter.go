package redislock

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock/internal/transport"
)

const entering = "entering the line of"

// lateDelivery is how long a network may deliver the first copy of an Enter that was sent
// again: Linux sends what a closed connection has not delivered for a quarter of an hour.
// Until then the Leave of the claim writes a tombstone.
const lateDelivery = 20 * time.Minute

// Enter joins the line of c.Key, in one request.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	return b.enter(ctx, c, false)
}

// enter is Enter, and Reenter of a claim that was lost.
func (b *Backend) enter(ctx context.Context, c driver.Claim, reenter bool) (driver.Ticket, error) {
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
	cmd := b.enterCommand(&c, reenter)
	got := b.transport.Do(ctx, cmd)
	if got.Err != nil && got.Answer == nil {
		b.waiters.forget(c.ID)
		return driver.Ticket{}, b.answered(ctx, entering, c.Key, got)
	}
	if got.Retried {
		b.retried.Store(c.ID, true)
		time.AfterFunc(lateDelivery, func() { b.retried.Delete(c.ID) })
	}
	t, soonest, ok := parseTicket(c, got.Answer)
	if !ok {
		return driver.Ticket{}, b.refused(ctx, c, got)
	}
	t.TTL, t.WaitTTL = c.Lease(t.Granted), 0
	if got.Err != nil {
		// Too few replicas know of the claim. If it cannot leave either, that is left to the
		// caller, as after any Enter whose outcome is unknown.
		b.waiters.forget(c.ID)
		_ = b.transport.Do(ctx, b.command(leaveScript, c.Key, prefixed(c.ID), b.callName()))
		return driver.Ticket{}, b.answered(ctx, entering, c.Key, got)
	}
	if t.Granted {
		b.waiters.forget(c.ID)
		if epoch == 0 || epoch != b.subscriber.epoch.Load() {
			b.subscriber.alarms.granted(c.ID, c.Key)
		}
		return t, nil
	}
	b.waiters.setStanding(c.ID, epoch, &t, sent, time.Now().Add(soonest))
	b.subscriber.open()
	return t, nil
}

// enterCommand is the script enter, or ballot for a claim with a ballot.
func (b *Backend) enterCommand(c *driver.Claim, reenter bool) (cmd *transport.Command) {
	if c.Ballot != 0 {
		cmd = b.ballotCommand(c, reenter)
	} else {
		args := append(make([]any, 0, 4), encodeClaim(c, b.channel), recordTTL(c.TTL), digit(c.NoWait))
		if c.WaitTTL > 0 {
			args = append(args, encodeLease(c.WaitTTL))
		}
		cmd = b.command(enterScript, c.Key, args...)
	}
	cmd.Durable = true
	return cmd
}

// refused returns why the server gave no ticket.
func (b *Backend) refused(ctx context.Context, c driver.Claim, got transport.Result) error {
	b.waiters.forget(c.ID)
	err := refusal(&c, got.Answer)
	if got.Retried && !driver.Gone(err) && !errors.Is(err, driver.ErrReused) {
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
	switch v := answer.(type) {
	case string:
		switch {
		case strings.HasPrefix(v, "k"):
			if capacity, err := strconv.ParseInt(v[1:], 10, 64); err == nil {
				return cmp.Or(c.CheckKind(capacity), driver.ErrKind)
			}
		case v == "o":
			return driver.ErrReused
		case strings.HasPrefix(v, "x"):
			return parseGone(v)
		}
		return ballotRefusal(entering, c.Key, v)
	case []any:
		r := reply{parts: v}
		if r.text() != "n" {
			break
		}
		busy := r.busy(int(r.number()))
		if !r.bad {
			return busy
		}
	}
	return badAnswer(entering, c.Key, answer)
}
