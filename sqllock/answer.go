package sqllock

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// answer is what the rows say that a step answers.
type answer struct {
	effects
	store  string              // its name, for errors
	ref    driverutil.ClaimRef // that was asked for
	done   bool                // the claim has left, or the leases were gone through
	ticket row
	head   *driver.BusyError // the first of a line in which the claim waits
	refuse error             // why there is no ticket, or no such claim
	lost   map[int64]error   // why leases are gone, by their place in the list, from 1
	last   int64             // the largest token of the line, if a reading tells
	broke  bool              // the step was sent again, and may have happened the first time
}

// errShort says that a step gave no answer, which it always does.
var errShort = errors.New("the step gave no answer: " + newDDL)

// newDDL says what to do about steps of another build.
const newDDL = "run the DDL of this version, on MariaDB and MySQL after DROP PROCEDURE of those that are there"

func (a *answer) begin() { *a = answer{store: a.store, ref: a.ref} }

// add takes one row; the schemas say what they mean.
func (a *answer) add(r *row) error {
	ref := driverutil.ClaimRef{Key: r.key, ID: r.id}
	if ref.Key == "" {
		ref.Key = a.ref.Key
	}
	switch r.what {
	case "left", "renewed":
		a.done = true
	case "ticket":
		a.ticket = *r
	case "head":
		a.head = r.busy(micros(r.remains), 0)
	case "lost":
		if a.lost == nil {
			a.lost = map[int64]error{}
		}
		a.lost[r.token] = r.gone()
	case "grant":
		a.granted = append(a.granted, grant{ref, r.mark, micros(r.remains)})
	case "broken":
		a.broken = append(a.broken, broken{ref, driver.GoneError{Broken: true, Reason: r.note}})
	case "touched":
		a.touched = append(a.touched, ref.Key)
	case "line":
		a.last = r.last
	case "stranger":
		a.strangers = true
	case "again", "removed": // a step on SQLite goes on
	default:
		a.refuse = a.refusal(r)
	}
	return nil
}

// refusals are the rows that stand for one error, whatever their other columns say.
var refusals = map[string]error{
	"holds":    driver.ErrGranted,
	"reused":   driver.ErrReused,
	"unbound":  errUnbound,
	"deadlock": errCircle,
}

// refusal is the error that a row stands for.
func (a *answer) refusal(r *row) error {
	if err := refusals[r.what]; err != nil {
		return err
	}
	switch r.what {
	case "gone":
		return r.gone()
	case "kind":
		a.ticket.capacity = r.capacity
		return driver.ErrKind
	case "busy":
		if a.head == nil {
			a.head = r.busy(micros(r.remains), 0)
		}
		if a.head.Token == 0 {
			return errShort
		}
		a.head.Ahead = int(r.ahead)
		return a.head
	case "torn":
		return damaged(a.ref.Key, errors.New("a claim has numbers that no step writes"))
	}
	return permanent(fmt.Errorf("%s: the database answers %.40q, which this program does not know: %s", a.store, r.what,
		newDDL))
}

// outcome is what became of a step on a claim.
func (a *answer) outcome() error {
	if a.refuse == nil && !a.done {
		return errShort
	}
	if gone, ok := a.refuse.(driver.GoneError); ok && !gone.Broken && a.broke {
		return a.unknown()
	}
	return a.refuse
}

// unknown says that the claim may have left in an attempt whose answer is lost.
func (a *answer) unknown() error {
	return fmt.Errorf("%s: the connection broke, and it is not known when the claim on %q left: try again",
		a.store, a.ref.Key)
}

// entered is the answer to an Enter of c.
func (a *answer) entered(c *driver.Claim) (driver.Ticket, error) {
	r := &a.ticket
	switch {
	case errors.Is(a.refuse, driver.ErrKind):
		return driver.Ticket{}, cmp.Or(driverutil.CheckKind(c.Capacity, r.capacity), a.refuse)
	case a.refuse != nil:
		return driver.Ticket{}, a.refuse
	case r.token < 1:
		return driver.Ticket{}, errShort
	case r.span == 0:
		// It found the lock free: all else is as it was asked for.
		return driver.Ticket{
			Claim: *c, Token: r.token, Granted: true, Left: c.TTL.Truncate(time.Microsecond), Mark: r.mark,
		}, nil
	}
	t := r.ticket(c)
	if t.Granted {
		return t, nil
	}
	t.Ahead, t.Head = int(r.ahead), a.head
	if t.Head != nil {
		t.Head.Ahead = t.Ahead
	}
	return t, nil
}
