package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// Statements that write wait for each other at the row of a line. Here somebody else's commits late, and
// the one that waited must judge by what it finds then.

// anyOrder are the databases whose steps may wait for each other, under all isolations.
var anyOrder = append(rarely(readCommitted, repeatableRead), mariaDB, serializable)

// TestStepSeesWhatItWaitedFor has an Enter wait for another that commits late: with a
// snapshot from before, it would not see the other's claim, and there were two holders.
func TestStepSeesWhatItWaitedFor(t *testing.T) {
	polled(t, anyOrder, func(t *testing.T, s *store, b *sqllock.Backend) {
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
			s.do(t, "UPDATE fencelock_swap SET expires = 1") // the other one dies
			leave(t, b, granted(t, b, ticket))
			empty(t, b)
		}
	})
}

// TestTombstoneKeepsOutAnEnterThatWaited has a Leave write a tombstone, and commit late, while
// the Enter of that ID waits for it: the claim would be a ghost that nobody leaves.
func TestTombstoneKeepsOutAnEnterThatWaited(t *testing.T) {
	polled(t, anyOrder, func(t *testing.T, s *store, b *sqllock.Backend) {
		use(t, b, "k")
		late := claim("k")
		x := s.begin(t, tombstoneSQL("k", late.ID))
		entered := behind(func() error { return second(b.Enter(soon(t), late)) })
		s.blocked(t)
		x.end()
		gone(t, "an Enter after its Leave", <-entered)
		// Others are not kept out, and those that were are not let in by them.
		use(t, b, "k")
		gone(t, "an Enter after its Leave and another holder", second(b.Enter(soon(t), late)))
	})
}

// TestRenewalInTimeThatCommitsLateCounts has a lease renewed in time by a transaction that
// is still open when the lease has passed. Who comes then has to wait for it: it must not be
// told that the lock is free, and the holder that it is renewed.
func TestRenewalInTimeThatCommitsLateCounts(t *testing.T) {
	polled(t, anyOrder, func(t *testing.T, s *store, b *sqllock.Backend) {
		for _, at := range []struct{ table, ends string }{{"fencelock_swap", "expires"}, {"fencelock_lease", "ending"}} {
			holder := hold(t, b, claim("k"))
			if at.table == "fencelock_lease" {
				holder = s.recorded(t, b, holder)
			}
			s.do(t, "UPDATE "+at.table+" SET "+at.ends+" = 1")
			s.do(t, "UPDATE fencelock_swap SET open_until = 0")
			x := s.begin(t, "UPDATE "+at.table+" SET "+at.ends+" = {now} + 600000000")
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
			empty(t, b)
		}
	})
}

// recorded returns a holder whose lease has a row of its own: it came behind before, and was renewed.
func (s *store) recorded(t *testing.T, b *sqllock.Backend, before driver.Ticket) driver.Ticket {
	t.Helper()
	w := wait(t, b, claim(before.Key))
	leave(t, b, before)
	w = granted(t, b, w)
	renewed(t, b, w)
	steps.Same(t, "leases with rows of their own", ask[int](t, s, "SELECT count(*) FROM fencelock_lease WHERE ending > 0"), 1)
	return w
}

// TestStepThatWaitedBeyondItsLeaseIsGone has somebody else keep the row of a claim until its
// lease has ended: the holder's step was sent in time, and comes too late. PostgreSQL judges a row as of when
// the statement came to it, unless somebody has changed the row meanwhile. Nobody has been granted the lock then.
func TestStepThatWaitedBeyondItsLeaseIsGone(t *testing.T) {
	polled(t, anyOrder, func(t *testing.T, s *store, b *sqllock.Backend) {
		for _, name := range []string{"Renew", "Leave", "Break"} {
			const lease = time.Second
			holder := hold(t, b, ttl(claim("k"), lease))
			ends := time.Now().Add(lease)
			x := s.begin(t, "SELECT * FROM fencelock_swap FOR UPDATE")
			done := behind(func() error { return verbs(b, holder)[name](soon(t)) })
			pause(time.Until(ends))
			x.end()
			if err := <-done; s.dialect == sqllock.MySQL || err != nil {
				gone(t, name+" that waited until its lease had ended", err)
			}
			until(t, "the lease is over", func() bool { return inLine(t, b, "k") == 0 })
			use(t, b, "k")
		}
	})
}

// TestTokensRiseWhenTheClockIsSetBack moves rows in time, which to everybody is as if the
// server's clock were stepped.
func TestTokensRiseWhenTheClockIsSetBack(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		holder := hold(t, b, claim("k"))
		s.do(t, fmt.Sprint("UPDATE fencelock_swap SET expires = expires - ", (holder.TTL+time.Second).Microseconds()))
		gone(t, "Renew of what has ended by the server's clock", renew(b, soon(t), holder))
		// A counter far ahead of the clock goes on from where it is, in a free line and in one
		// that somebody is in.
		const hour = 3600 * 1_000_000
		last := hold(t, b, claim("k"))
		leave(t, b, last)
		s.do(t, fmt.Sprintf("UPDATE fencelock_swap SET last = last + %d", hour))
		later := hold(t, b, claim("k"))
		if later.Token != last.Token+hour+1 {
			t.Errorf("after a clock that was set back the token is %d; want one above the counter, %d",
				later.Token, last.Token+hour)
		}
		leave(t, b, later)
		holder = hold(t, b, claim("k"))
		busy(t, b, "k")
		s.do(t, fmt.Sprintf("UPDATE fencelock_swap SET last = last + %d", hour))
		w := wait(t, b, claim("k"))
		steps.Rises(t, holder.Token+hour, w.Token)
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
		x := s.begin(t, "LOCK TABLE fencelock_swap, fencelock_lease IN ACCESS EXCLUSIVE MODE")
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
		x := s.begin(t, lockLine)
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		steps.Is(t, "Leave that cannot get through", b.Leave(ctx, holder, driver.Exit{Mark: "too early"}), context.DeadlineExceeded)
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
		well(t, "Leave after a time-out of the lock", <-left)
		empty(t, b)
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
		calls := verbs(b, holder)
		calls["Enter"] = func(ctx context.Context) error { return second(b.Enter(ctx, holder.Claim)) }
		for _, kill := range how {
			for _, name := range []string{"Enter", "Renew", "Break", "Leave"} {
				x := s.begin(t, lockLine)
				done := behind(func() error { return calls[name](soon(t)) })
				s.do(t, fmt.Sprintf(kill, s.blocked(t)))
				unsure(t, name+" that was killed", <-done)
				x.undo()
				// Nothing of it stays behind, above all no lock on the line.
				until(t, "nobody has rows of k locked", s.unlocked)
				steps.InLine(t, name+" was undone", b, "k", 1)
				if name == "Enter" || name == "Renew" {
					well(t, name+" again", calls[name](soon(t)))
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

// TestClockInTheNightThatHasAnHourTwice has a server in a zone with summer time, whose
// SYSDATE may be set, which tells what the schema makes of any moment: around the two
// changes of the year the clock may not jump, or leases end an hour early.
func TestClockInTheNightThatHasAnHourTwice(t *testing.T) {
	t.Setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
	t.Run("MariaDB", hourTwice)
}

func hourTwice(t *testing.T) {
	s := ownServer(t, mariaDB, testserver.Config("sysdate-is-now"))
	drivertest.Model(t, func(t *testing.T) driver.Backend { return s.polling(t) }, 2)
	essentials(t, s.polling(t), s.polling(t))
	s.db.SetMaxOpenConns(1) // whose timestamp is set
	// A check of the check: here an hour comes twice.
	autumn := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC)
	spring := time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)
	local := func(at time.Time) string {
		s.do(t, fmt.Sprintf("SET timestamp = %d", at.Unix()))
		return ask[string](t, s, "SELECT SYSDATE()")
	}
	if first, again := local(autumn), local(autumn.Add(time.Hour)); first != again {
		t.Fatalf("half past midnight UTC and an hour later are %s and %s; want one local time", first, again)
	}
	for _, change := range []time.Time{autumn, spring} {
		for minute := -90; minute < 150; minute += 10 {
			at := change.Add(time.Duration(minute)*time.Minute + 123456*time.Microsecond)
			s.do(t, fmt.Sprintf("SET timestamp = %d.%06d", at.Unix(), at.Nanosecond()/1000))
			steps.Same(t, fmt.Sprint("the clock at ", at), ask[int64](t, s, "SELECT "+swapsql.MySQL.SQL("{now}", "")), at.UnixMicro())
		}
	}
}
