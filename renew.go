package fencelock

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

const (
	renewBatch   = 512         // claims in one call of Backend.Renew
	renewBatches = 64          // such calls on their way at once
	longestNap   = time.Second // the clock is looked at this often while anything is held, in case the machine slept
)

// arm sets the timer for the earliest claim of the schedule. c.mu is held.
func (c *Client) arm(now int64) {
	if len(c.sched) == 0 {
		return
	}
	at := min(c.sched[0].next, now+int64(longestNap))
	if at >= c.armed {
		return
	}
	c.armed = at
	d := max(time.Duration(at-now), soonest)
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.tick)
	} else {
		c.timer.Reset(d)
	}
}

// plan puts cl where its next event is. c.mu is held.
func (c *Client) plan(cl *claim, now int64) {
	if c.stage == over {
		return
	}
	switch cl.state {
	case waiting, held:
		at := min(cl.deadline.Load(), cl.endAt)
		if !cl.atRisk {
			at = min(at, cl.riskAt())
		}
		if !cl.busy && !(cl.fixed && cl.state == held) {
			at = min(at, cl.retryAt)
		}
		c.sched.put(cl, at)
	case leaving:
		if cl.exiting {
			c.sched.put(cl, never)
		} else {
			c.sched.put(cl, cl.retryAt)
		}
	default:
		c.sched.drop(cl)
	}
	c.arm(now)
}

// riskAt is when two thirds of the lease have passed.
func (cl *claim) riskAt() int64 {
	if cl.fixed && cl.state == held {
		return never
	}
	return cl.sent + 2*(cl.deadline.Load()-cl.sent)/3
}

// tick runs what is due. It is the timer's own goroutine, so a Client has none.
func (c *Client) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.now()
	c.armed = never
	var due map[int][]*claim // by the length of the lease, in powers of two
	for len(c.sched) > 0 {
		cl := c.sched[0]
		// Renewals that are due a little later go along, so that leases taken at
		// different times come to be renewed together. Not where no more batches may go
		// out: what is put off there would be early again, for ever.
		early := int64(0)
		if cl.state != leaving && cl.next == cl.retryAt && cl.tries == 0 && due != nil && c.renews < renewBatches {
			early = int64(cl.ttl) / 12
		}
		if cl.next > now+early {
			break
		}
		switch {
		case cl.state == leaving:
			c.sendLeave(cl, now)
			continue
		case c.lapse(cl, now):
			continue
		}
		if !cl.atRisk && now >= cl.riskAt() {
			c.risk(cl, now, nil)
		}
		if !cl.busy && !(cl.fixed && cl.state == held) && now+early >= cl.retryAt {
			if c.renews >= renewBatches {
				cl.retryAt = now + int64(cl.ttl)/60
			} else {
				cl.busy = true
				class := bits.Len64(uint64(cl.ttl))
				if due == nil {
					due = map[int][]*claim{}
				}
				due[class] = append(due[class], cl)
				if len(due[class]) == renewBatch {
					c.renewSoon(due[class])
					due[class] = nil
				}
			}
		}
		c.plan(cl, now)
	}
	for _, batch := range due {
		if len(batch) > 0 {
			c.renewSoon(batch)
		}
	}
	c.arm(now)
}

// risk says that the lease of cl may end before it is renewed. c.mu is held.
func (c *Client) risk(cl *claim, now int64, err error) {
	if cl.atRisk {
		return
	}
	cl.atRisk = true
	if cl.grant != nil {
		c.emit(c.o.Hooks.AtRisk, Event{
			Key: cl.key, Token: cl.holderToken(), Err: err,
			Left: time.Duration(cl.deadline.Load() - now),
		})
	}
}

// holderToken is the token of the grant that cl serves now.
func (cl *claim) holderToken() fence.Token {
	if cl.grant != nil {
		return cl.grant.token
	}
	return fence.Token(cl.token)
}

// renewSoon sends one batch on a goroutine of its own. c.mu is held.
func (c *Client) renewSoon(batch []*claim) {
	c.renews++
	c.calls++
	tickets := make([]driver.Ticket, len(batch))
	limit := time.Duration(1<<62 - 1)
	for i, cl := range batch {
		tickets[i] = c.ticket(cl)
		limit = min(limit, cl.ttl/3)
	}
	go c.renew(batch, tickets, limit)
}

func (c *Client) renew(batch []*claim, tickets []driver.Ticket, limit time.Duration) {
	sent := c.clock.now()
	call := c.callFor(context.Background(), sent, limit)
	call.life = &c.keep
	errs := c.b.Renew(call, tickets)
	call.end()
	now := c.clock.now()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.renews--
	c.calls--
	for i, cl := range batch {
		if cl.id != tickets[i].ID {
			continue // it has entered anew meanwhile
		}
		cl.busy = false
		if idle := cl.has().idle; idle != nil {
			close(idle)
			cl.gets().idle = nil
		}
		var err error
		if i < len(errs) {
			err = errs[i]
		} else {
			err = fmt.Errorf("the backend answered %d of %d renewals", len(errs), len(batch))
		}
		c.renewed(cl, tickets[i].TTL, sent, now, err)
	}
	c.moved()
}

// renewed takes in the answer to a renewal of cl. c.mu is held.
func (c *Client) renewed(cl *claim, ttl time.Duration, sent, now int64, err error) {
	if cl.state != waiting && cl.state != held {
		return
	}
	if now >= cl.deadline.Load() {
		// Whatever the store says now, the holder has been told that it is over.
		c.lose(cl, ErrExpired, "")
		return
	}
	if driver.Gone(err) {
		reason, operator := goneDetail(err)
		c.broken(cl, reason, operator)
		return
	}
	if err == nil && cl.answered(sent, now, ttl) {
		cl.atRisk = false
		if cl.grant != nil {
			c.emit(c.o.Hooks.Renewed, Event{
				Key: cl.key, Token: cl.holderToken(),
				Left: time.Duration(cl.deadline.Load() - now),
			})
		}
		c.plan(cl, now)
		return
	}
	if err == nil {
		err = errLate
	}
	cl.tries++
	cl.retryAt = now + min(max(int64(c.o.Backoff(int(cl.tries))), int64(cl.ttl)/1000), int64(cl.ttl)/12)
	c.risk(cl, now, unavailable(context.Background(), err))
	c.plan(cl, now)
}

// alarm is called by a backend that heard of a claim's end.
func (c *Client) alarm(id string, gone driver.ErrGone) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cl := range c.sched {
		if cl.id == id {
			c.broken(cl, gone.Reason, gone.Broken)
			return
		}
	}
}

// broken ends a claim that the store no longer has. c.mu is held.
func (c *Client) broken(cl *claim, reason string, operator bool) {
	if cl.state != waiting && cl.state != held {
		return
	}
	detail := reason
	switch {
	case operator && reason == "":
		detail = "an operator broke it"
	case !operator && reason == "":
		detail = "it was no longer in the store"
	}
	cl.broken = operator
	cl.over = 0 // nothing is left to run out
	c.lose(cl, ErrBroken, detail)
}

// lapse ends cl if its time is over, and reports whether it was. c.mu is held.
func (c *Client) lapse(cl *claim, now int64) bool {
	deadline := cl.deadline.Load()
	switch {
	case now < min(deadline, cl.endAt):
		return false
	case cl.endAt <= deadline:
		c.lose(cl, ErrMaxHold, "")
	default:
		c.lose(cl, ErrExpired, "")
	}
	return true
}

// lose ends a claim that did not leave by itself. Whoever holds it is told before
// anybody else can be granted by this process. c.mu is held.
func (c *Client) lose(cl *claim, kind error, detail string) {
	if cl.state != waiting && cl.state != held {
		return
	}
	now := c.clock.now()
	g := cl.grant
	cl.state = ended
	lost := cl.lossOf(kind, cl.holderToken(), detail)
	cl.gets().lost = lost
	if wake := cl.has().wake; wake != nil {
		wake()
	}
	if g == nil {
		// Nobody holds it: its caller enters again, or gives up, and lays the ID to
		// rest itself.
		c.plan(cl, now)
		return
	}
	c.endGrant(g, lost)
	if kind == ErrBroken {
		c.plan(cl, now)
	} else {
		// The lease runs out in the store by itself; until then its holder, who may
		// not have looked yet, is covered. Then the store is told, because on stores
		// with shared leases the other claims would keep this one alive.
		c.oweLeave(cl, max(cl.over, now), driver.Exit{})
	}
	c.gateLost(cl)
}
