package sqllock

import (
	"cmp"
	"context"
	"fmt"

	"github.com/fencelock/fencelock/driver"
)

// errLeft is the answer to a claim that has left.
var errLeft = driver.ErrGone{Reason: "it has left"}

// enter takes a free lock by one statement, and any other by a transaction.
//
// That statement's clock is read before SQLite lets it write, so it may be late. That is safe:
// the line is empty, so no other lease is compared with it; its own lease only begins earlier;
// and a token that is not above the counter changes nothing. Only a transaction that removes a
// claim grants its place to another.
func (s *sqlite) enter(ctx context.Context, c *driver.Claim, reenter bool) (driver.Ticket, effects, error) {
	if c.Ballot == 0 {
		t, ok, err := s.enterFree(ctx, c)
		if err != nil {
			return driver.Ticket{}, effects{}, err
		}
		if ok {
			return t, effects{}, nil
		}
	}
	var ticket driver.Ticket
	e, err := s.transact(ctx, false, "enter the line of", c.Key, func(t *txn) (err error) {
		ticket, err = t.enter(c, reenter)
		return err
	})
	return ticket, e, err
}

func (s *sqlite) enterFree(ctx context.Context, c *driver.Claim) (t driver.Ticket, ok bool, err error) {
	err = s.write(ctx, false, func(d *database) error {
		ok, err = s.autocommit(ctx, d, "enter_free", func() []any {
			now := readClock()
			l := now.lasting(c.TTL)
			t = driver.Ticket{Claim: *c, Token: now.wall, Granted: true, Left: c.TTL}
			return []any{[]byte(c.Key), t.Token, c.ID, c.Span, c.Capacity, c.Weight,
				l.clock, l.expires, l.until, l.ttl, d.node, c.Owner, c.Note}
		})
		if err != nil || !ok {
			return err
		}
		return s.check(ctx, d)
	})
	if says(err, "constraint failed", "cannot store REAL value") {
		// The wall clock is before 1970. The transaction has a token for that.
		return t, false, nil
	}
	return t, ok, s.fail(named("enter the line of", c.Key), err)
}

// enter is one Enter in a transaction.
func (t *txn) enter(c *driver.Claim, reenter bool) (driver.Ticket, error) {
	none := driver.Ticket{}
	v, err := t.refresh(c.Key, c.ID)
	if err != nil {
		return none, err
	}
	lingers := false
	if v.mine != 0 {
		old, err := t.claimOf(c.Key, v.mine)
		if err != nil {
			return none, err
		}
		if !old.lingering {
			return t.enterAgain(c, &v, &old)
		}
		lingers = true
	}
	gone, err := t.tombstone(c.Key, c.ID)
	switch {
	case err != nil || gone != nil:
		return none, cmp.Or(err, gone)
	case lingers:
		// A late repeat of its Enter must not bring it back, nor stand in line a second time.
		return none, errLeft
	case v.n > 0 && (c.Capacity == driver.RW) != (v.high == driver.RW):
		return none, driver.ErrKind
	}
	granted := v.weight+c.Weight <= c.Capacity
	if c.NoWait && !granted {
		head, err := t.claimOf(c.Key, v.first)
		return none, cmp.Or(err, error(head.busy(min(v.n, maxAhead), t.now)))
	}
	if c.Ballot != 0 {
		if err := t.judge(c, &v, reenter); err != nil {
			return none, err
		}
	}
	return t.join(c, &v, granted)
}

// maxAhead is as far as those before a claim are counted.
const maxAhead = 1024

// enterAgain starts the lease of the claim again that is in line already.
func (t *txn) enterAgain(c *driver.Claim, v *summary, old *row) (driver.Ticket, error) {
	l := t.now.lasting(c.TTL)
	if _, err := t.exec("reenter", []byte(c.Key), old.token, l.expires, l.until, l.ttl, t.node); err != nil {
		return driver.Ticket{}, err
	}
	old.expires = max(old.expires, l.expires)
	ticket := old.ticket(c, old.left(t.now), v.low != v.high)
	if ticket.Granted {
		return ticket, nil
	}
	head, err := t.claimOf(c.Key, v.first)
	ticket.Ahead, ticket.Head = int(old.ahead), head.busy(int(old.ahead), t.now)
	return ticket, err
}

// join puts a new claim behind all others.
func (t *txn) join(c *driver.Claim, v *summary, granted bool) (driver.Ticket, error) {
	if v.last > lastToken-c.Span {
		return driver.Ticket{}, damaged(c.Key, fmt.Errorf("the counter is at %d", v.last))
	}
	ticket := driver.Ticket{
		Claim:   *c,
		Token:   max(v.last+1, t.now.wall, 1),
		Granted: granted,
		Left:    c.TTL,
		Mixed:   v.n > 0 && (v.low != c.Capacity || v.high != c.Capacity),
	}
	if c.Ballot != 0 {
		ticket.Token = c.Ballot
	}
	var mark []byte
	if granted && v.mark != "" {
		ticket.Mark, mark = v.mark, []byte(v.mark)
	}
	if !granted {
		head, err := t.claimOf(c.Key, v.first)
		if err != nil {
			return driver.Ticket{}, err
		}
		ticket.Ahead = min(v.n, maxAhead)
		ticket.Head = head.busy(ticket.Ahead, t.now)
	}
	l := t.now.lasting(c.TTL)
	_, err := t.exec("join", []byte(c.Key), ticket.Token, c.ID, c.Span, c.Capacity, c.Weight,
		l.clock, l.expires, l.until, l.ttl, t.node, c.Owner, c.Note, granted, t.now.wall, mark)
	return ticket, err
}
