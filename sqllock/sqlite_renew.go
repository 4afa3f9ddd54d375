package sqllock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// goneMoved is the end of claims in a file that the path no longer leads to.
var goneMoved = driver.ErrGone{Reason: "the database file was deleted or replaced"}

// renew starts the leases of ts again in one transaction: all of it, or nothing. A claim
// does not outlive the file that it has entered, also if the new file is a copy with that
// claim in it: others may have been granted in the old file since it was copied.
func (s *sqlite) renew(ctx context.Context, ts []driver.Ticket) ([]error, effects) {
	errs := make([]error, len(ts))
	e, err := s.transact(ctx, true, "renew leases", "", func(t *txn) (err error) {
		for i := range ts {
			errs[i] = t.renew(&ts[i])
			if errs[i] != nil && !commits(errs[i]) {
				return errs[i]
			}
		}
		return nil
	})
	if errors.Is(err, errMoved) {
		err, e = goneMoved, effects{}
	}
	if err != nil {
		errs = slices.Repeat([]error{err}, len(ts))
	}
	return errs, e
}

// renew starts one lease again. The statement looks at the clock itself, so that a
// lease that has ended is not brought back.
func (t *txn) renew(ticket *driver.Ticket) error {
	if alive, err := t.extend(ticket, ticket.Token); alive || err != nil {
		return err
	}
	// It is gone, or on the clock of another boot, or has entered anew under the
	// same ID.
	v, err := t.refresh(ticket.Key, ticket.ID)
	if err != nil {
		return err
	}
	if v.mine != 0 {
		if alive, err := t.extend(ticket, v.mine); alive || err != nil {
			return err
		}
	}
	gone, err := t.tombstone(ticket.Key, ticket.ID)
	return cmp.Or(err, gone, error(driver.ErrGone{}))
}

func (t *txn) extend(ticket *driver.Ticket, token int64) (alive bool, err error) {
	l := t.now.lasting(clampTTL(ticket.TTL))
	n, err := t.exec("renew", []byte(ticket.Key), token, ticket.ID,
		t.now.clock, t.now.at, l.expires, l.until, l.ttl, t.node)
	return n > 0, err
}

// memory is how long the clock must have overtaken a counter before it is forgotten: until
// then a clock that was set back could draw a token again.
const memory = 24 * time.Hour

// sweep goes through the next lines, from where the last sweep of any process has ended. It
// removes claims whose processes have died, in lines that nobody has asked for since, and
// forgets lines that are idle.
func (s *sqlite) sweep(ctx context.Context) (effects, error) {
	return s.transact(ctx, false, "sweep", "", func(t *txn) error {
		var after, end string
		err := t.query("", func(r *row) error {
			after, end = r.key, r.note
			return nil
		}, "sweep_range", sweepLines)
		if err != nil {
			return err
		}
		var dead []string
		err = t.query("", func(r *row) error {
			dead = append(dead, r.key)
			return nil
		}, "sweep_dead", []byte(after), []byte(end), t.now.clock, t.now.at, sweepLines)
		if err != nil {
			return err
		}
		for _, key := range dead {
			if _, err := t.refresh(key, ""); err != nil {
				return err
			}
		}
		if _, err := t.exec("sweep_idle", []byte(after), []byte(end), t.now.wall-memory.Microseconds()); err != nil {
			return err
		}
		_, err = t.exec("sweep_write", []byte(end))
		return err
	})
}
