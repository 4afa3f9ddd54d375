package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// Steps wait for each other at the row of a line. Here somebody else's step commits late, and
// the one that waited must judge by what it finds then.

// anyOrder are the databases whose steps may wait for each other, under all isolations.
var anyOrder = append([]kind{mariaDB}, isolations...)

// placed runs f twice on each: with a claim in the row of its line, and with one that was
// moved to its own. table is where the claim is.
func placed(t *testing.T,
	f func(t *testing.T, s *store, b *sqllock.Backend, holder driver.Ticket, table, ends string)) {
	t.Helper()
	polled(t, anyOrder, func(t *testing.T, s *store, b *sqllock.Backend) {
		for _, at := range []struct{ place, table, ends string }{
			{"Alone", "fencelock_line", s.words["{ends}"]}, {"Moved", "fencelock_claim", "expires"},
		} {
			t.Run(at.place, func(t *testing.T) {
				holder := hold(t, b, claim("k"))
				if at.place == "Moved" {
					busy(t, b, "k")
				}
				f(t, s, b, holder, at.table, at.ends)
				empty(t, b)
				s.sane(t)
			})
		}
	})
}

// TestStepSeesWhatItWaitedFor has an Enter wait for another that commits late: with a
// snapshot from before, it would not see the other's claim, and there were two holders.
func TestStepSeesWhatItWaitedFor(t *testing.T) {
	polled(t, isolations, func(t *testing.T, s *store, b *sqllock.Backend) {
		use(t, b, "other")
		for _, line := range []string{"new", "old"} {
			x := s.begin(t, s.enterSQL("k", "x"))
			entered := behind(func() driver.Ticket { return enter(t, b, claim("k")) })
			s.blocked(t)
			x.end()
			ticket := <-entered
			if ticket.Granted {
				t.Fatalf("two claims hold the lock of a %s line: the second did not see the first, which it had waited for", line)
			}
			if ticket.Head == nil || ticket.Token <= ticket.Head.Token {
				t.Errorf("token %d is drawn behind %+v; want a larger one", ticket.Token, ticket.Head)
			}
			// The same with a Leave that commits late.
			x = s.begin(t, s.leaveSQL("k", "x", 0))
			entered = behind(func() driver.Ticket { return enter(t, b, claim("k")) })
			s.blocked(t)
			x.end()
			last := <-entered
			if last.Granted {
				t.Errorf("a claim was granted past one that was granted by a step before it")
			}
			leave(t, b, granted(t, b, ticket))
			leave(t, b, granted(t, b, last))
			empty(t, b)
			s.sane(t)
		}
	})
}

// moveSQL moves the claim that is alone on k to a row of its own, and stays in the middle of
// that step.
func (s *store) moveSQL() string {
	if s.dialect == sqllock.MySQL {
		return "CALL fencelock_v1_open('k', 0, @now, @last, @front, @mark, @mark_id)"
	}
	return "SELECT * FROM fencelock_enter('k', 'somebody', 1048576, 1048576, 60000000, true, 1, 7, '', '')"
}

// TestStepsBesideOneThatMovesTheirClaim has a try move a claim out of the row of its line and
// commit late. The holder's own steps wait for that, and find the claim where it is then.
func TestStepsBesideOneThatMovesTheirClaim(t *testing.T) {
	polled(t, anyOrder, func(t *testing.T, s *store, b *sqllock.Backend) {
		for name, step := range map[string]func(holder driver.Ticket) error{
			"Renew": func(holder driver.Ticket) error {
				return renew(b, soon(t), holder)
			},
			"Leave": func(holder driver.Ticket) error { return b.Leave(soon(t), holder, driver.Exit{}) },
			"Break": func(holder driver.Ticket) error { return b.Break(soon(t), "k", holder.Token, "enough", 0) },
			"Enter": func(holder driver.Ticket) error {
				again, err := b.Enter(soon(t), holder.Claim)
				if err == nil && again.Token != holder.Token {
					return fmt.Errorf("it got token %d after %d", again.Token, holder.Token)
				}
				return err
			},
		} {
			holder := hold(t, b, claim("k"))
			if !s.keeps(t, "k") {
				t.Fatal("the line does not keep the claim")
			}
			x := s.begin(t, s.moveSQL())
			done := behind(func() error { return step(holder) })
			s.blocked(t)
			x.end()
			if err := <-done; err != nil {
				t.Errorf("%s beside a step that moves its claim answered %v", name, err)
			}
			s.sane(t)
			err := b.Leave(soon(t), holder, driver.Exit{})
			if driver.Gone(err) != (name == "Leave" || name == "Break") {
				t.Errorf("Leave after %s answered %v", name, err)
			}
			empty(t, b)
			s.sane(t)
		}
	})
}

// TestTombstoneKeepsOutAnEnterThatWaited has a Leave write a tombstone, and commit late, while
// the Enter of that ID waits for it: the claim would be a ghost that nobody leaves.
func TestTombstoneKeepsOutAnEnterThatWaited(t *testing.T) {
	polled(t, anyOrder, func(t *testing.T, s *store, b *sqllock.Backend) {
		use(t, b, "k")
		late := claim("k")
		var x *session
		if s.dialect == sqllock.MySQL {
			x = s.begin(t, s.moveSQL(), fmt.Sprintf("CALL fencelock_v1_entomb('k', '%s', @now, @now + 60000000, 0, 'it has left', 1)", late.ID))
		} else {
			x = s.begin(t, s.leaveSQL("k", late.ID, 60_000_000))
		}
		entered := behind(func() error { return second(b.Enter(soon(t), late)) })
		s.blocked(t)
		x.end()
		gone(t, "an Enter after its Leave", <-entered)
		// Others are not kept out, and those that were are not let in by them.
		use(t, b, "k")
		s.sane(t)
		gone(t, "an Enter after its Leave and another holder", second(b.Enter(soon(t), late)))
		// Nor by a line that was forgotten meanwhile.
		s.do(t, "DELETE FROM fencelock_line WHERE {key} = 'k'")
		gone(t, "an Enter after its Leave into a new line", second(b.Enter(soon(t), late)))
		if s.dialect == sqllock.MySQL {
			// When the tombstone is over, the lock is as free as before.
			s.do(t, "UPDATE {tombstones} SET expires = 1")
			use(t, b, "k")
			if ask[bool](t, s, "SELECT tombstones FROM fencelock_line WHERE lock_key = 'k'") {
				t.Error("the line says that there are tombstones")
			}
			use(t, b, "k")
			leave(t, b, hold(t, b, late))
		}
	})
}

// TestRenewalInTimeThatCommitsLateCounts has a lease renewed in time by a transaction that
// is still open when the lease has passed. Who comes then has to wait for it: it must not be
// told that the lock is free, and the holder that it is renewed.
func TestRenewalInTimeThatCommitsLateCounts(t *testing.T) {
	placed(t, func(t *testing.T, s *store, b *sqllock.Backend, holder driver.Ticket, table, ends string) {
		s.do(t, "UPDATE "+table+" SET "+ends+" = 1")
		if s.dialect == sqllock.Postgres {
			s.do(t, "UPDATE fencelock_line SET soonest = 1")
		}
		x := s.begin(t, "UPDATE "+table+" SET "+ends+" = {now} + 60000000")
		entered := behind(func() driver.Ticket { return enter(t, b, claim("k")) })
		s.blocked(t)
		x.end()
		next := <-entered
		if next.Granted {
			t.Error("Enter beside a renewal that commits late was granted the lock; want it to wait")
		}
		well(t, "Renew", renew(b, soon(t), holder))
		leave(t, b, holder)
		leave(t, b, granted(t, b, next))
	})
}

// TestStepThatWaitedBeyondItsLeaseIsGone has somebody else keep the row of a claim until its
// lease has ended: the holder's step was sent in time, and comes too late.
func TestStepThatWaitedBeyondItsLeaseIsGone(t *testing.T) {
	placed(t, func(t *testing.T, s *store, b *sqllock.Backend, holder driver.Ticket, table, ends string) {
		steps := []func() error{
			func() error { return renew(b, soon(t), holder) },
			func() error { return b.Leave(soon(t), holder, driver.Exit{}) },
		}
		switch {
		case table == "fencelock_line":
		case s.dialect == sqllock.Postgres:
			steps = steps[:1]
		default: // The step has the line, and nobody is granted meanwhile.
			steps = nil
		}
		for _, step := range steps {
			x := s.begin(t, "SELECT * FROM "+table+" FOR UPDATE")
			done := behind(step)
			s.blocked(t)
			x.do("UPDATE " + table + " SET " + ends + " = {now}")
			x.end()
			gone(t, "a step that waited until its lease had ended", <-done)
			if s.dialect == sqllock.Postgres {
				s.do(t, "UPDATE fencelock_line SET soonest = 1")
			}
			holder = hold(t, b, claim("k"))
			if table == "fencelock_claim" {
				busy(t, b, "k")
			}
		}
		leave(t, b, holder)
	})
}

// TestClockIsReadUnderTheLockOfTheLine has an Enter wait for the lock on its line. It begins
// when it has it, not when it was sent, so the order of tokens is that of their clocks. And a
// lease that ended meanwhile has ended.
func TestClockIsReadUnderTheLockOfTheLine(t *testing.T) {
	polled(t, anyOrder, func(t *testing.T, s *store, b *sqllock.Backend) {
		use(t, b, "k")
		x := s.begin(t, "UPDATE fencelock_line SET mark = mark")
		entered := behind(func() driver.Ticket { return enter(t, b, claim("k")) })
		s.blocked(t)
		now := ask[float64](t, s, "SELECT {now}")
		x.end()
		first := <-entered
		if since := ask[int64](t, s, "SELECT since FROM fencelock_line"); float64(since) < now ||
			float64(first.Token) < now {
			t.Errorf("a claim that entered after %f is held since %d, with token %d", now, since, first.Token)
		}
		x = s.begin(t, lockLine)
		tried := behind(func() error { return second(b.Enter(soon(t), noWait(claim("k")))) })
		s.blocked(t)
		x.do("UPDATE fencelock_line SET {ends} = {now}")
		x.end()
		well(t, "Enter that waited until the lease ahead had ended", <-tried)
		leaveAll(t, b)
	})
}

// TestTokensRiseWhenTheClockIsSetBack moves rows in time, which to everybody is as if the
// server's clock were stepped.
func TestTokensRiseWhenTheClockIsSetBack(t *testing.T) {
	polled(t, onServers, func(t *testing.T, s *store, b *sqllock.Backend) {
		holder := hold(t, b, claim("k"))
		s.do(t, "UPDATE fencelock_line SET {ends} = {ends} - 61 * 1000000")
		gone(t, "Renew of what has ended by the server's clock", renew(b, soon(t), holder))
		// A counter far ahead of the clock goes on from where it is, in a free line and in one
		// that somebody is in.
		const hour = 3600 * 1_000_000
		sets := []string{""}
		if s.dialect == sqllock.MySQL {
			sets = append(sets, ", front = last + 1")
		}
		last := hold(t, b, claim("k"))
		leave(t, b, last)
		for _, set := range sets {
			s.do(t, fmt.Sprintf("UPDATE fencelock_line SET last = last + %d%s", hour, set))
			later := hold(t, b, claim("k"))
			if later.Token != last.Token+hour+1 {
				t.Errorf("after a clock that was set back the token is %d; want one above the counter, %d",
					later.Token, last.Token+hour)
			}
			leave(t, b, later)
			last = later
		}
		holder = hold(t, b, claim("k"))
		busy(t, b, "k")
		s.do(t, fmt.Sprintf("UPDATE fencelock_line SET last = last + %d", hour))
		w := wait(t, b, claim("k"))
		if w.Token <= holder.Token+hour {
			t.Errorf("token %d is drawn after %d", w.Token, holder.Token+hour)
		}
		leave(t, b, holder)
		leave(t, b, granted(t, b, w))
	})
}

// TestAwaitAnswersOnlyWhatWasRead holds up the database for longer than Await waits. What it
// answers then is not what its caller knew before.
func TestAwaitAnswersOnlyWhatWasRead(t *testing.T) {
	polled(t, []kind{postgres}, func(t *testing.T, s *store, b *sqllock.Backend) {
		holder := hold(t, b, claim("k"))
		left, waits := enter(t, b, claim("k")), enter(t, b, claim("k"))
		leave(t, b, left)
		x := s.begin(t, "LOCK TABLE fencelock_line, fencelock_claim IN ACCESS EXCLUSIVE MODE")
		type answer struct {
			t   driver.Ticket
			err error
		}
		await := func(ticket driver.Ticket) <-chan answer {
			return behind(func() answer {
				now, err := b.Await(soon(t), ticket)
				return answer{now, err}
			})
		}
		ofLeft, ofWaiting := await(left), await(waits)
		select {
		case a := <-ofLeft:
			t.Fatalf("Await of a claim that has left answered (%+v, %v) before the database did", a.t, a.err)
		case a := <-ofWaiting:
			t.Fatalf("Await of a claim that waits answered (%+v, %v) before the database did", a.t, a.err)
		case <-time.After(1500 * time.Millisecond):
		}
		x.end()
		gone(t, "Await of a claim that has left", (<-ofLeft).err)
		a := <-ofWaiting
		if a.err != nil || a.t.Granted || a.t.Ahead != 1 || a.t.Head == nil || a.t.Head.Token != holder.Token {
			t.Errorf("Await of a claim that waits answered (%+v, %v); want it behind %+v", a.t, a.err, holder)
		}
		leave(t, b, holder)
		leave(t, b, granted(t, b, waits))
	})
}

// TestLockTimeoutIsTriedAgain lets a step wait for a row in its middle until the server gives
// up. All of the step is undone, and it is tried again.
func TestLockTimeoutIsTriedAgain(t *testing.T) {
	each(t, []kind{
		postgres.with("Impatient", "lock_timeout=10ms"), mariaDB.with("Impatient", "innodb_lock_wait_timeout=1"),
	}, func(t *testing.T, s *store) {
		b := s.polling(t)
		holder := hold(t, b, claim("k"))
		busy(t, b, "k")
		// The mark is written before the claim is removed.
		x := s.begin(t, lockClaims)
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		if err := b.Leave(ctx, holder, driver.Exit{Mark: "too early"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Leave that cannot get through answered %v; want the end of its context", err)
		}
		s.settled(t, 0) // its last attempt goes on at the server until it gives up as well
		if l, err := b.Line(soon(t), "k"); err != nil || l.Mark != "" || len(l.Claims) != 1 {
			t.Errorf("the line is %+v, %v, after a step that did not happen", l, err)
		}
		x.undo()
		renewed(t, b, holder)
		x = s.begin(t, lockLine)
		left := behind(func() error { return b.Leave(soon(t), holder, driver.Exit{}) })
		pause(1500 * time.Millisecond)
		select {
		case err := <-left:
			t.Fatalf("Leave answered %v while its line was locked", err)
		default:
		}
		x.end()
		if err := <-left; err != nil {
			t.Errorf("Leave after a time-out of the lock answered %v; want it to be tried again", err)
		}
		empty(t, b)
		s.sane(t)
	})
}

// settled waits until so many statements of programs are at work in the database.
func (s *store) settled(t testing.TB, many int) {
	t.Helper()
	query := `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()`
	if s.dialect == sqllock.MySQL {
		query = `SELECT COUNT(*) FROM information_schema.processlist
			WHERE db = DATABASE() AND command = 'Query' AND id <> CONNECTION_ID()`
	}
	until(t, fmt.Sprint(many, " statements are at work"), func() bool { return ask[int](t, s, query) == many })
}

// TestSessionKilledByAnAdmin ends the statement, or the session, of each step while it has the
// line and waits for a claim.
func TestSessionKilledByAnAdmin(t *testing.T) {
	each(t, []kind{postgres, pgBouncer, mariaDB}, func(t *testing.T, s *store) {
		how := []string{"SELECT pg_cancel_backend(%d)", "SELECT pg_terminate_backend(%d)"}
		if s.dialect == sqllock.MySQL {
			how = []string{"KILL QUERY %d", "KILL CONNECTION %d"}
		}
		b := s.polling(t)
		holder := hold(t, b, claim("k"))
		busy(t, b, "k")
		calls := verbs(b, holder)
		calls["Enter"] = func(ctx context.Context) error { return second(b.Enter(ctx, holder.Claim)) }
		for _, kill := range how {
			for _, name := range []string{"Enter", "Renew", "Break", "Leave"} {
				x := s.begin(t, lockClaims)
				done := behind(func() error { return calls[name](soon(t)) })
				s.do(t, fmt.Sprintf(kill, s.blocked(t)))
				unsure(t, name+" that was killed", <-done)
				x.undo()
				// Nothing of it stays behind, above all no lock on the line.
				until(t, "nobody has rows of k locked", s.unlocked)
				if l, err := b.Line(soon(t), "k"); err != nil || len(l.Claims) != 1 {
					t.Errorf("%d claims are in line, %v; want one: %s was undone", len(l.Claims), err, name)
				}
				if name == "Enter" || name == "Renew" {
					if err := calls[name](soon(t)); err != nil {
						t.Errorf("%s again: %v", name, err)
					}
				}
			}
		}
		leave(t, b, holder)
		empty(t, b)
	})
}

// unlocked reports whether nobody has a lock on a line or a claim.
func (s *store) unlocked() bool {
	tx, err := s.db.BeginTx(context.Background(), &sql.TxOptions{})
	if err != nil {
		return false
	}
	defer tx.Rollback()
	for _, lock := range []string{lockLine, lockClaims} {
		if _, err := tx.Exec(lock + " NOWAIT"); err != nil {
			return false
		}
	}
	return true
}
