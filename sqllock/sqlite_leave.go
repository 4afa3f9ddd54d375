package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// leave gives up a lock that nobody waits for by one statement, and any other by a
// transaction.
func (s *sqlite) leave(ctx context.Context, t *driver.Ticket, e driver.Exit) (effects, error) {
	if t.Token != 0 && e == (driver.Exit{}) {
		ok, err := s.leaveFree(ctx, t)
		if err != nil || ok {
			return effects{}, s.fail(fmt.Sprintf("leave the line of %q", t.Key), err)
		}
	}
	var answer error
	done, err := s.transact(ctx, "leave the line of", t.Key, func(x *txn) (err error) {
		answer, err = x.leave(t, e)
		return err
	})
	if err == nil {
		err = answer
	}
	return done, err
}

// leaveFree does not check whether the path still leads to the file: a claim that leaves a
// deleted file harms nobody.
func (s *sqlite) leaveFree(ctx context.Context, t *driver.Ticket) (ok bool, err error) {
	err = s.write(ctx, s.on, func(d *database) error {
		ok, err = s.autocommit(ctx, func(ctx context.Context) (sql.Result, error) {
			now := readClock()
			return d.leaveFree.ExecContext(ctx, []byte(t.Key), t.Token, t.ID, now.clock, now.at)
		})
		return err
	})
	return ok, err
}

// leave is one Leave in a transaction.
func (t *txn) leave(ticket *driver.Ticket, e driver.Exit) (answer, err error) {
	v, err := t.refresh(ticket.Key, ticket.ID)
	if err != nil {
		return nil, err
	}
	var c claim
	if v.mine != 0 {
		if c, err = t.claimOf(v.key, v.mine); err != nil {
			return nil, err
		}
	}
	in := v.mine != 0 && !c.lingering
	if !in && v.markID != ticket.ID {
		gone, _, err := t.tombstone(v.key, ticket.ID)
		if err != nil {
			return nil, err
		}
		answer = gone
	}
	if ticket.Token == 0 {
		err := t.writeTombstone(v.key, ticket.ID, t.now.lasting(clampTTL(ticket.TTL)), errLeft, t.node)
		if err != nil {
			return nil, err
		}
	}
	if !in {
		return answer, nil
	}
	if e.Mark != "" && c.granted > 0 {
		v.mark = []byte(e.Mark)
		if err := t.exec(t.statements.mark, []byte(v.key), v.mark, c.id, v.last); err != nil {
			return nil, err
		}
	}
	if e.Linger > 0 {
		l := t.now.lasting(clampTTL(e.Linger))
		return nil, t.exec(t.statements.linger, []byte(v.key), c.token, l.expires, l.until, l.ttl)
	}
	return nil, t.remove(&v, &c)
}

// end is Break: it takes the claim whose span holds token out of its line.
func (s *sqlite) end(ctx context.Context, key string, token int64, reason string) (effects, error) {
	var answer error
	e, err := s.transact(ctx, "break a claim of", key, func(t *txn) (err error) {
		answer, err = t.end(key, token, reason)
		return err
	})
	if err == nil {
		err = answer
	}
	return e, err
}

func (t *txn) end(key string, token int64, reason string) (answer, err error) {
	v, err := t.refresh(key, "")
	if err != nil {
		return nil, err
	}
	c, err := t.find(key, t.statements.claimByToken, []byte(key), token)
	if err != nil {
		return nil, err
	}
	if c.token == 0 || token-c.token >= c.span {
		return driver.ErrGone{}, nil
	}
	gone := driver.ErrGone{Reason: reason, Broken: true}
	if err := t.writeTombstone(key, c.id, c.lease, gone, c.node); err != nil {
		return nil, err
	}
	if err := t.remove(&v, &c); err != nil {
		return nil, err
	}
	if c.node == t.node {
		t.broken = append(t.broken, broken{key, c.id, gone})
	} else {
		t.strangers = true
	}
	return nil, nil
}

// remove takes c out of its line, and grants what that lets in.
func (t *txn) remove(v *summary, c *claim) error {
	if err := t.exec(t.statements.remove, []byte(v.key), c.token); err != nil {
		return err
	}
	if v.n == 1 && !v.part {
		return nil
	}
	if c.granted == 0 {
		t.touched = append(t.touched, v.key) // somebody may be waiting for it
	}
	return t.grantFitting(v)
}

// writeTombstone keeps id from entering again until l ends.
func (t *txn) writeTombstone(key, id string, l lease, gone driver.ErrGone, node int64) error {
	return t.exec(t.statements.tombstoneWrite, []byte(key), id, l.clock, l.expires, l.until,
		gone.Broken, gone.Reason, node)
}

func clampTTL(d time.Duration) time.Duration {
	return min(max(d, sqliteInfo.MinTTL), sqliteInfo.MaxTTL)
}
