package sqllock

import (
	"context"
	"database/sql"
	"errors"
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
func (s *sqlite) enter(ctx context.Context, c *driver.Claim) (driver.Ticket, effects, error) {
	t, ok, err := s.enterFree(ctx, c)
	if err != nil {
		return t, effects{}, s.fail(fmt.Sprintf("enter the line of %q", c.Key), err)
	}
	if ok {
		return t, s.sweepSometimes(ctx), nil
	}
	var ticket driver.Ticket
	var refusal error
	e, err := s.transact(ctx, "enter the line of", c.Key, func(t *txn) (err error) {
		ticket, refusal, err = t.enter(c)
		return err
	})
	if err == nil {
		err = refusal
	}
	if err != nil {
		return driver.Ticket{}, e, err
	}
	return ticket, e.and(s.sweepSometimes(ctx)), nil
}

func (s *sqlite) enterFree(ctx context.Context, c *driver.Claim) (t driver.Ticket, ok bool, err error) {
	err = s.write(ctx, s.on, func(d *database) error {
		ok, err = s.autocommit(ctx, func(ctx context.Context) (sql.Result, error) {
			now := readClock()
			l := now.lasting(c.TTL)
			t = driver.Ticket{Claim: *c, Token: now.wall, Granted: true, Left: c.TTL}
			return d.enterFree.ExecContext(ctx, []byte(c.Key), t.Token, c.ID, c.Span, c.Capacity, c.Weight,
				l.clock, l.expires, l.until, l.ttl, d.node, c.Owner, c.Note)
		})
		if err != nil || !ok {
			return err
		}
		return s.check(ctx, d)
	})
	if constrained(err) {
		// The wall clock is before 1970. The transaction has a token for that.
		return t, false, nil
	}
	return t, ok, err
}

// enter is one Enter in a transaction. refusal is its answer if there is no ticket.
func (t *txn) enter(c *driver.Claim) (_ driver.Ticket, refusal, err error) {
	none := driver.Ticket{}
	v, err := t.refresh(c.Key, c.ID)
	if err != nil {
		return none, nil, err
	}
	if v.mine != 0 {
		if ticket, ok, err := t.enterAgain(c, &v); ok || err != nil {
			return ticket, nil, err
		}
	}
	switch gone, at, err := t.tombstone(c.Key, c.ID); {
	case err != nil:
		return none, nil, err
	case at:
		return none, gone, nil
	case v.mine != 0:
		// It lingers: a late repeat of its Enter must not bring it back, nor stand
		// in line a second time.
		return none, errLeft, nil
	}
	if v.n > 0 && (c.Capacity == driver.RW && v.min < driver.RW || c.Capacity < driver.RW && v.max == driver.RW) {
		return none, driver.ErrKind, nil
	}
	granted := !v.part && v.weight+c.Weight <= c.Capacity
	if c.NoWait && !granted {
		head, err := t.first(c.Key)
		if err != nil {
			return none, nil, err
		}
		return none, head.busy(head.ahead, t.now), nil
	}
	if t.vote != nil {
		if refusal, err := t.judge(c, &v); refusal != nil || err != nil {
			return none, refusal, err
		}
	}
	ticket, err := t.join(c, &v, granted)
	return ticket, nil, err
}

// enterAgain starts the lease of the claim again that is in line already. ok is
// false if that claim lingers.
func (t *txn) enterAgain(c *driver.Claim, v *summary) (ticket driver.Ticket, ok bool, err error) {
	old, err := t.claimOf(c.Key, v.mine)
	if err != nil || old.lingering {
		return driver.Ticket{}, false, err
	}
	l := t.now.lasting(c.TTL)
	if err := t.exec(t.statements.reenter, []byte(c.Key), old.token, l.expires, l.until, l.ttl, t.node); err != nil {
		return driver.Ticket{}, false, err
	}
	old.expires = max(old.expires, l.expires)
	ticket = driver.Ticket{
		Claim: *c, Token: old.token, Granted: old.granted > 0, Left: old.left(t.now), Mixed: v.min != v.max,
	}
	ticket.Owner, ticket.Note, ticket.Span = old.owner, old.note, old.span
	ticket.Capacity, ticket.Weight = old.capacity, old.weight
	if ticket.Granted {
		ticket.Mark = driver.Mark(old.mark)
		return ticket, true, nil
	}
	head, err := t.first(c.Key)
	if err != nil {
		return driver.Ticket{}, false, err
	}
	ticket.Ahead, ticket.Head = old.ahead, head.busy(old.ahead, t.now)
	return ticket, true, nil
}

// join puts a new claim behind all others.
func (t *txn) join(c *driver.Claim, v *summary, granted bool) (driver.Ticket, error) {
	if v.last > lastToken-c.Span {
		return driver.Ticket{}, damaged(c.Key, fmt.Errorf("the counter is at %d", v.last))
	}
	l := t.now.lasting(c.TTL)
	ticket := driver.Ticket{
		Claim:   *c,
		Token:   max(v.last+1, t.now.wall, 1),
		Granted: granted,
		Left:    c.TTL,
		Mixed:   v.n > 0 && (v.min != c.Capacity || v.max != c.Capacity),
	}
	if t.vote != nil {
		ticket.Token = c.Ballot
	}
	var mark []byte
	flag := 0
	if granted {
		mark, flag = v.mark, 1
		ticket.Mark = driver.Mark(mark)
	} else {
		head, err := t.first(c.Key)
		if err != nil {
			return driver.Ticket{}, err
		}
		ticket.Ahead, ticket.Head = head.ahead, head.busy(head.ahead, t.now)
	}
	err := t.exec(t.statements.join, []byte(c.Key), ticket.Token, c.ID, c.Span, c.Capacity, c.Weight,
		l.clock, l.expires, l.until, l.ttl, t.node, c.Owner, c.Note, flag, t.now.wall, mark)
	if err != nil {
		return driver.Ticket{}, err
	}
	return ticket, nil
}

// claimOf reads the claim of key that drew token.
func (t *txn) claimOf(key string, token int64) (claim, error) {
	return t.claim(key, t.statements.claim, []byte(key), token)
}

// first reads the first claim of key.
func (t *txn) first(key string) (claim, error) {
	return t.claim(key, t.statements.first, []byte(key))
}

func (t *txn) claim(key string, stmt *sql.Stmt, args ...any) (claim, error) {
	c, err := t.find(key, stmt, args...)
	if err == nil && c.token == 0 {
		err = damaged(key, errors.New("a claim that was counted is not there"))
	}
	return c, err
}

// find reads one claim; its token is 0 if there is none.
func (t *txn) find(key string, stmt *sql.Stmt, args ...any) (c claim, err error) {
	err = t.rows(func(r *sql.Rows) error {
		if err := scanned(key, r.Scan(&c.token, &c.span, &c.id, &c.capacity, &c.weight, &c.granted, &c.lingering,
			&c.clock, &c.expires, &c.until, &c.ttl, &c.since, &c.node, &c.mark, &c.owner, &c.note, &c.ahead)); err != nil {
			return err
		}
		return c.check(key)
	}, stmt, args...)
	return c, err
}

// tombstone reads why id may not enter any more; at is false if it may.
func (t *txn) tombstone(key, id string) (gone driver.ErrGone, at bool, err error) {
	err = t.rows(func(r *sql.Rows) error {
		at = true
		return scanned(key, r.Scan(&gone.Broken, &gone.Reason))
	}, t.statements.tombstoneRead, []byte(key), id, t.now.clock, t.now.at, t.now.wall)
	return gone, at, err
}
