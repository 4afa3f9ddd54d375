package sqllock

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock/driver"
)

// goneMoved is the end of claims in a file that the path no longer leads to.
var goneMoved = driver.ErrGone{Reason: "the database file was deleted or replaced"}

// renew starts the leases of ts again in one transaction: all of it, or nothing. A claim
// does not outlive the file that it has entered, also if the new file is a copy with that
// claim in it: others may have been granted in the old file since it was copied.
func (s *sqlite) renew(ctx context.Context, ts []driver.Ticket) ([]error, effects) {
	errs := make([]error, len(ts))
	e, err := s.transactOn(ctx, s.onSame, "renew leases", "", func(t *txn) error {
		for i := range ts {
			alive, gone, err := t.renew(&ts[i])
			switch {
			case err != nil:
				return err
			case alive:
				errs[i] = nil
			default:
				errs[i] = gone
			}
		}
		return nil
	})
	if errors.Is(err, errMoved) {
		err, e = goneMoved, effects{}
	}
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs, e
}

// renew starts one lease again. The statement looks at the clock itself, so that a
// lease that has ended is not brought back.
func (t *txn) renew(ticket *driver.Ticket) (alive bool, gone driver.ErrGone, err error) {
	if alive, err = t.extend(ticket, ticket.Token); alive || err != nil {
		return alive, gone, err
	}
	// It is gone, or on the clock of another boot, or has entered anew under the
	// same ID.
	v, err := t.refresh(ticket.Key, ticket.ID)
	if err != nil {
		return false, gone, err
	}
	if v.mine != 0 {
		if alive, err = t.extend(ticket, v.mine); alive || err != nil {
			return alive, gone, err
		}
	}
	gone, known, err := t.tombstone(ticket.Key, ticket.ID)
	if t.again && !known {
		gone = goneMoved
	}
	return false, gone, err
}

func (t *txn) extend(ticket *driver.Ticket, token int64) (bool, error) {
	l := t.now.lasting(clampTTL(ticket.TTL))
	n, err := t.changes(t.statements.renew, []byte(ticket.Key), token, ticket.ID,
		t.now.clock, t.now.at, l.expires, l.until, l.ttl, t.node)
	return n > 0, err
}

// purge removes what has expired from a line, in a transaction that does nothing else.
func (s *sqlite) purge(ctx context.Context, key string) (effects, error) {
	return s.transact(ctx, "purge the line of", key, func(t *txn) error {
		v, err := t.refresh(key, "")
		if err != nil {
			return err
		}
		return t.grantFitting(&v)
	})
}
