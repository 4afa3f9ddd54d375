package sqllock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// reads are the steps that read by one statement and need no transaction.
var reads = []string{"line", "next", "standing", "news"}

// call makes a step on SQLite.
func (s *sqlite) call(ctx context.Context, what, key string, into sink, step string, args ...any) (bool, error) {
	if slices.Contains(reads, step) {
		return false, s.fail(what, key, s.read(ctx, key, step, into, args))
	}
	err := s.transact(ctx, false, key, func(t *txn) error {
		into.begin()
		return t.step(step, args, into.add)
	})
	return false, s.fail(what, key, err)
}

// read makes a step that reads.
func (s *sqlite) read(ctx context.Context, key, step string, into sink, args []any) error {
	return s.on(ctx, false, func(d *database) error {
		err := retryBusy(ctx, func() error {
			into.begin()
			stmt, call := &d.statements[step][0], s.statementContext(ctx)
			_, err := stmt.query(call, nil, readClock(), d.node, args, key, into.add)
			return err
		})
		if err != nil {
			return err
		}
		return s.check(ctx, d)
	})
}

// enter takes a free lock by one statement, and any other one by a transaction.
func (s *sqlite) enter(ctx context.Context, c *driver.Claim, reenter bool) (driver.Ticket, effects, error) {
	if c.Ballot == 0 {
		now, done, err := s.free(ctx, "enter_free", func(d *database) error { return s.check(ctx, d) },
			[]byte(c.Key), c.ID, c.Capacity, c.Weight, c.TTL.Microseconds(), c.Span, c.Owner, c.Note)
		if done || err != nil {
			left := c.TTL.Truncate(time.Microsecond)
			t := driver.Ticket{Claim: *c, Token: max(now.wall, 1), Granted: true, Left: left}
			return t, effects{}, s.fail("enter the line of", c.Key, err)
		}
	}
	return s.steps.enter(ctx, c, reenter)
}

// leave gives up a lock that nobody waits for by one statement, and any other one by a
// transaction. A claim that leaves a deleted file harms nobody, so the file is not checked.
func (s *sqlite) leave(ctx context.Context, t *driver.Ticket, e driver.Exit) (effects, error) {
	if t.Token != 0 && e == (driver.Exit{}) {
		unchecked := func(*database) error { return nil }
		_, done, err := s.free(ctx, "leave_free", unchecked, []byte(t.Key), t.ID, t.Token)
		if done || err != nil {
			return effects{}, s.fail("leave the line of", t.Key, err)
		}
	}
	return s.steps.leave(ctx, t, e)
}

// free makes a step by one statement, if nobody else is in line. The clock of the statement
// was read at now.
func (s *sqlite) free(ctx context.Context, name string, check func(d *database) error, args ...any,
) (now instant, done bool, err error) {
	err = s.write(ctx, false, func(d *database) error {
		err := retryBusy(ctx, func() (err error) {
			now = readClock()
			done, err = d.statements[name][0].exec(s.statementContext(ctx), nil, now, d.node, args)
			return err
		})
		if err != nil || !done {
			return err
		}
		return check(d)
	})
	return now, done, err
}

// renew starts the leases of ts again in one transaction: all of it, or nothing. A claim
// does not outlive the file that it has entered, also if the new file is a copy with that
// claim in it: others may have been granted in the old file since it was copied.
func (s *sqlite) renew(ctx context.Context, ts []driver.Ticket) ([]error, effects) {
	errs := make([]error, len(ts))
	err := s.transact(ctx, true, "", func(t *txn) error {
		for i := range ts {
			one := &ts[i]
			a := answer{store: s.name, ref: one.Ref()}
			args := []any{[]byte(one.Key), one.ID, one.Token, clampTTL(one.TTL).Microseconds()}
			done, err := t.statements["renew"][0].exec(t.ctx, t.tx, t.now, t.node, args)
			if err == nil && !done {
				_, err = t.run("renew_any", args, a.add)
			}
			if err != nil {
				return err
			}
			errs[i] = a.refuse
		}
		return nil
	})
	if errors.Is(err, errMoved) {
		err = driver.ErrGone{Reason: "the database file was deleted or replaced"}
	}
	if err != nil {
		errs = slices.Repeat([]error{s.fail("renew leases", "", err)}, len(ts))
	}
	return errs, effects{}
}

// step makes a step that writes.
func (t *txn) step(step string, args []any, take func(r *row) error) error {
	switch step {
	case "initialise":
		return t.initialise(take)
	case "sweep":
		return t.sweep(args, take)
	}
	decided, err := t.runAndGrant("refresh", args, take)
	if err != nil || decided {
		return err
	}
	switch step {
	case "enter":
		err = t.enter(args, take)
	case "purge": // it grants what fits also where rows were deleted by hand
		_, err = t.run("grant", args, take)
	default:
		if decided, err = t.runAndGrant(step, args, take); err == nil && !decided {
			err = take(&row{what: "left"})
		}
	}
	if step == "leave" && err == nil {
		_, err = t.run("tombstone", args, take)
	}
	return err
}

// runAndGrant runs the statements of a file, and grants what fits if they removed a claim.
func (t *txn) runAndGrant(name string, args []any, take func(r *row) error) (decided bool, err error) {
	removed := false
	decided, err = t.run(name, args, func(r *row) error {
		removed = removed || r.what == "touched" || r.what == "removed"
		return take(r)
	})
	if err == nil && removed {
		_, err = t.run("grant", args, take)
	}
	return decided, err
}

// enter starts the lease of a claim again, or joins.
func (t *txn) enter(args []any, take func(r *row) error) error {
	again := false
	decided, err := t.run("enter", args, func(r *row) error {
		again = r.what == "again"
		return take(r)
	})
	if err != nil || decided && !again {
		return err
	}
	if !again {
		if refused, err := t.judge(args); err != nil {
			return err
		} else if refused != nil {
			return take(refused)
		}
		if _, err := t.run("join", args, take); err != nil {
			return err
		}
	}
	_, err = t.run("ticket", args, take)
	return err
}

// sweep forgets idle lines, and claims whose processes have died.
func (t *txn) sweep(args []any, take func(r *row) error) error {
	var touched []string
	_, err := t.run("sweep", args, func(r *row) error {
		touched = append(touched, r.key)
		return take(r)
	})
	for _, key := range touched {
		if err == nil {
			_, err = t.run("grant", []any{[]byte(key)}, func(r *row) error {
				r.key = key
				return take(r)
			})
		}
	}
	return err
}
