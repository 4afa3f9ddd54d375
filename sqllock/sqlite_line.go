package sqllock

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock/driver"
)

// summary describes a line whose expired claims were purged.
type summary struct {
	key       string
	last      int64 // the largest token drawn
	mark      driver.Mark
	markID    string
	n         int   // claims in line
	weight    int64 // Σ of theirs
	low, high int64 // the least and the largest of their capacities
	first     int64 // the token of the first, or 0
	mine      int64 // the token of the claim that was asked for, or 0
}

// refresh removes expired claims, grants what fits then, and summarizes the line for the
// claim with that ID.
func (t *txn) refresh(key, id string) (summary, error) {
	v := summary{key: key}
	if _, err := t.exec("adopt", []byte(key), t.now.clock, t.now.at, t.now.wall); err != nil {
		return v, err
	}
	expired, err := t.exec("purge", []byte(key), t.now.at)
	if err == nil && expired > 0 {
		t.touched = append(t.touched, key)
		err = t.grantFitting(key)
	}
	if err != nil {
		return v, err
	}
	var wrong bool
	stmt := t.tx.StmtContext(t.ctx, t.stmts["summary"])
	err = stmt.QueryRowContext(t.ctx, []byte(key), id).Scan(&v.last, &v.mark, &v.markID, &v.n, &v.weight, &v.low,
		&v.high, &v.first, &v.mine, &wrong)
	if err == nil && wrong {
		err = damaged(key, errors.New("a claim has numbers that no step writes"))
	}
	return v, scanned(key, err)
}

// grantFitting grants what fits in a line from which somebody was removed.
func (t *txn) grantFitting(key string) error {
	return t.query(key, func(r *row) error {
		if r.node != t.node {
			t.strangers = true
			return nil
		}
		t.granted = append(t.granted, r.grant(key, t.now))
		return nil
	}, "grant", []byte(key), t.now.wall, t.node)
}

// claimOf reads the last claim of key whose token is at most token; its token is 0 if there
// is none.
func (t *txn) claimOf(key string, token int64) (c row, err error) {
	err = t.query(key, func(r *row) error {
		c = *r
		return c.check(key)
	}, "claim", []byte(key), token)
	return c, err
}

// tombstone returns why id may not enter any more, or nil if it may.
func (t *txn) tombstone(key, id string) (gone error, err error) {
	err = t.query(key, func(r *row) error {
		gone = r.gone()
		return nil
	}, "tombstone_read", []byte(key), id, t.now.clock, t.now.at, t.now.wall)
	return gone, err
}

// writeTombstone keeps id from entering again until l ends.
func (t *txn) writeTombstone(key, id string, l lease, gone driver.ErrGone, node int64) error {
	_, err := t.exec("tombstone_write", []byte(key), id, l.clock, l.expires, l.until, gone.Broken, gone.Reason, node)
	return err
}

// remove takes c out of its line, and grants what that lets in.
func (t *txn) remove(v *summary, c *row) error {
	if _, err := t.exec("remove", []byte(v.key), c.token); err != nil || v.n == 1 {
		return err
	}
	if !c.granted {
		t.touched = append(t.touched, v.key) // somebody may be waiting for it
	}
	return t.grantFitting(v.key)
}

// purge removes what has expired from a line, in a transaction that does nothing else. It
// grants what fits also where rows were deleted by hand.
func (s *sqlite) purge(ctx context.Context, key string) (effects, error) {
	return s.transact(ctx, false, "purge the line of", key, func(t *txn) error {
		if _, err := t.refresh(key, ""); err != nil {
			return err
		}
		return t.grantFitting(key)
	})
}
