package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// reads are the steps that read by one statement and need no transaction.
var reads = []string{"line", "next", "standing", "news", "history"}

// call makes a step on SQLite. Of a renewal, see renew.
func (s *sqlite) call(ctx context.Context, what, key string, into sink, step string, args ...any) (bool, error) {
	if slices.Contains(reads, step) {
		err := s.inTurn(ctx, s.reading, func() error { return s.read(ctx, key, step, into, args) })
		return false, s.fail(what, key, err)
	}
	err := s.write(ctx, step == "renew", func(d *database) error {
		return retryBusy(ctx, func() error { return s.transact(ctx, d, key, step, into, args) })
	})
	if errors.Is(err, errMoved) {
		err = driver.GoneError{Reason: movedReason}
	}
	return false, s.fail(what, key, err)
}

// read makes a step that reads.
func (s *sqlite) read(ctx context.Context, key, step string, into sink, args []any) error {
	return s.on(ctx, false, func(d *database) error {
		err := retryBusy(ctx, func() error {
			into.begin()
			stmt, statementCtx := &d.statements[step][0], ctx
			if !s.waitsForConnection() {
				statementCtx = s.statementContext(ctx)
			}
			_, err := stmt.query(statementCtx, nil, stmt.pick(readClock(), d.node, args), key, into.add)
			return err
		})
		if err != nil {
			return err
		}
		return s.check(ctx, d)
	})
}

// enterFree takes a free lock by one statement.
func (s *sqlite) enterFree(ctx context.Context, c *driver.Claim) (t driver.Ticket, done bool, err error) {
	now, done, err := s.free(ctx, "enter_free", func(d *database) error { return s.check(ctx, d) },
		[]byte(c.Key), c.ID, c.Capacity, c.Weight, c.TTL.Microseconds(), c.Span, c.Owner, c.Note)
	if done {
		left := c.TTL.Truncate(time.Microsecond)
		t = driver.Ticket{Claim: *c, Token: max(now.wall, 1), Granted: true, Left: left}
	}
	return t, done, s.fail("enter the line of", c.Key, err)
}

// leaveFree gives up a lock that nobody waits for by one statement. A claim that leaves a
// deleted file harms nobody, so the file is not checked.
func (s *sqlite) leaveFree(ctx context.Context, t *driver.Ticket) (done bool, err error) {
	unchecked := func(*database) error { return nil }
	_, done, err = s.free(ctx, "leave_free", unchecked, []byte(t.Key), t.ID, t.Token)
	return done, s.fail("leave the line of", t.Key, err)
}

// free makes a step by one statement, if nobody else is in line. The clock of the statement
// was read at now.
func (s *sqlite) free(ctx context.Context, name string, check func(d *database) error, args ...any,
) (now instant, done bool, err error) {
	err = s.write(ctx, false, func(d *database) error {
		err := retryBusy(ctx, func() (err error) {
			now = readClock()
			stmt := &d.statements[name][0]
			picked := stmt.pick(now, d.node, args)
			if !s.waitsForConnection() {
				done, err = stmt.exec(s.statementContext(ctx), nil, picked)
				return err
			}
			return s.inTransaction(ctx, func(ctx context.Context, _ *sql.Conn, tx *sql.Tx) error {
				if done, err = stmt.exec(ctx, tx, picked); err != nil {
					return err
				}
				return tx.Commit()
			})
		})
		if err != nil || !done {
			return err
		}
		return check(d)
	})
	return now, done, err
}

// step makes a step that writes.
func (t *txn) step(step string) (err error) {
	switch step {
	case "renew":
		return t.renew(t.args[0].([]driver.Ticket))
	case "sweep":
		return t.sweep()
	case "record":
		return t.record()
	}
	if _, err := t.runAndGrant("refresh"); err != nil {
		return err
	}
	switch step {
	case "enter":
		return t.enter()
	case "leave":
		return t.leave(t.args[2].([]byte), t.args[3].(int64), t.args[4].(int64))
	case "adopt":
		return t.adopt()
	case "break":
		return t.end("break")
	}
	_, err = t.run("grant") // a purge grants what fits also where rows were deleted by hand
	return err
}

// runAndGrant runs the statements of some files, and grants what fits if they removed a claim.
func (t *txn) runAndGrant(names ...string) (decided bool, err error) {
	removed, take := false, t.take
	t.take = func(r *row) error {
		removed = removed || r.what == "touched" || r.what == "removed"
		return take(r)
	}
	decided, err = t.run(names...)
	if t.take = take; err == nil && removed {
		_, err = t.run("grant")
	}
	return decided, err
}

// enter starts the lease of a claim again, or joins.
func (t *txn) enter() error {
	again := false
	decided, err := t.query("enter", t.args, func(r *row) error {
		again = r.what == "again"
		return t.take(r)
	})
	switch {
	case err != nil, decided && !again:
		return err
	case again:
		_, err = t.run("ticket")
		return err
	}
	_, err = t.run("join", "ticket")
	return err
}

// adopt gives a claim that is granted another ID.
func (t *txn) adopt() error {
	adopted := false
	_, err := t.query("adopt", t.args, func(r *row) error {
		adopted = adopted || r.what == "again"
		return t.take(r)
	})
	if err == nil && adopted {
		_, err = t.run("ticket")
	}
	return err
}

// leave takes a claim out of its line; if linger < 0, only if it waits.
func (t *txn) leave(mark []byte, linger, tombstone int64) error {
	if linger < 0 {
		if holds, err := t.run("holds"); holds || err != nil {
			return err
		}
	}
	files := []string{"leave", "remove"}
	if linger > 0 {
		files[1] = "linger"
	}
	if len(mark) > 0 {
		files = slices.Insert(files, 1, "mark")
	}
	err := t.end(files...)
	if err == nil && tombstone > 0 {
		_, err = t.run("tombstone")
	}
	return err
}

// end runs the statements of files that end a claim, unless one says that it is gone.
func (t *txn) end(files ...string) error {
	decided, err := t.runAndGrant(files...)
	if err == nil && !decided {
		err = t.take(&row{what: "left"})
	}
	return err
}

// renew starts leases again: all of them, or nothing. A claim does not outlive the file that it
// has entered, also if the new file is a copy with that claim in it: others may have been
// granted in the old file since it was copied. A detached claim, or a named one, has no
// such backend.
func (t *txn) renew(ts []driver.Ticket) error {
	stmt := &t.statements["renew"][0]
	for i := range ts {
		one := &ts[i]
		args := []any{[]byte(one.Key), one.ID, one.Token, clampTTL(one.TTL).Microseconds(), one.Detached || one.Named}
		done, err := stmt.exec(t.ctx, t.tx, stmt.pick(t.now, t.node, args))
		if err == nil && !done {
			_, err = t.query("renew_any", args, func(r *row) error {
				if r.what == "gone" {
					r.what, r.token = "lost", int64(i+1)
					if r.note == "" && t.second {
						r.note = movedReason
					}
				}
				return t.take(r)
			})
		}
		if err != nil {
			return err
		}
	}
	return t.take(&row{what: "renewed"})
}

// sweep forgets idle lines, and claims whose processes have died.
func (t *txn) sweep() error {
	var touched []string
	_, err := t.query("sweep", t.args, func(r *row) error {
		touched = append(touched, r.key)
		return t.take(r)
	})
	for _, key := range touched {
		if err == nil {
			_, err = t.query("grant", []any{[]byte(key)}, func(r *row) error {
				r.key = key
				return t.take(r)
			})
		}
	}
	return err
}
