package sqllock

import (
	"cmp"
	"context"

	"github.com/fencelock/fencelock/driver"
)

// leave gives up a lock that nobody waits for by one statement, and any other by a
// transaction.
func (s *sqlite) leave(ctx context.Context, t *driver.Ticket, e driver.Exit) (effects, error) {
	if t.Token != 0 && e == (driver.Exit{}) {
		// That the path still leads to the file is not checked: a claim that leaves a deleted
		// file harms nobody.
		left := false
		err := s.write(ctx, false, func(d *database) (err error) {
			left, err = s.autocommit(ctx, d, "leave_free", func() []any {
				now := readClock()
				return []any{[]byte(t.Key), t.Token, t.ID, now.clock, now.at}
			})
			return err
		})
		if err != nil || left {
			return effects{}, s.fail(named("leave the line of", t.Key), err)
		}
	}
	return s.transact(ctx, false, "leave the line of", t.Key, func(x *txn) error { return x.leave(t, e) })
}

// leave is one Leave in a transaction.
func (t *txn) leave(ticket *driver.Ticket, e driver.Exit) error {
	v, err := t.refresh(ticket.Key, ticket.ID)
	if err != nil {
		return err
	}
	var c row
	if v.mine != 0 {
		if c, err = t.claimOf(v.key, v.mine); err != nil {
			return err
		}
	}
	in := v.mine != 0 && !c.lingering
	var answer error
	if !in && v.markID != ticket.ID {
		gone, err := t.tombstone(v.key, ticket.ID)
		if err != nil {
			return err
		}
		answer = cmp.Or(gone, error(driver.ErrGone{}))
	}
	if ticket.Token == 0 {
		err := t.writeTombstone(v.key, ticket.ID, t.now.lasting(clampTTL(ticket.TTL)), errLeft, t.node)
		if err != nil {
			return err
		}
	}
	if !in {
		return answer
	}
	if e.Mark != "" && c.granted {
		if _, err := t.exec("mark", []byte(v.key), []byte(e.Mark), c.id, v.last); err != nil {
			return err
		}
	}
	if e.Linger > 0 {
		l := t.now.lasting(clampTTL(e.Linger))
		_, err := t.exec("linger", []byte(v.key), c.token, l.expires, l.until, l.ttl)
		return err
	}
	return t.remove(&v, &c)
}

// end is Break: it takes the claim whose span holds token out of its line.
func (s *sqlite) end(ctx context.Context, key string, token int64, reason string) (effects, error) {
	return s.transact(ctx, false, "break a claim of", key, func(t *txn) error {
		v, err := t.refresh(key, "")
		if err != nil {
			return err
		}
		c, err := t.claimOf(key, token)
		if err != nil {
			return err
		}
		if c.token == 0 || token-c.token >= c.span {
			return driver.ErrGone{}
		}
		gone := driver.ErrGone{Reason: reason, Broken: true}
		if err := t.writeTombstone(key, c.id, c.lease, gone, c.node); err != nil {
			return err
		}
		if c.node == t.node {
			t.broken = append(t.broken, broken{driver.ClaimRef{Key: key, ID: c.id}, gone})
		} else {
			t.strangers = true
		}
		return t.remove(&v, &c)
	})
}
