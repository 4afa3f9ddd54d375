package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/swaplock"
)

// TestWhatATransactionHeldIsForgottenAfterADay has transactions whose program never looked at their keys again.
func TestWhatATransactionHeldIsForgottenAfterADay(t *testing.T) {
	eachTx(t, onServers, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		tx := s.transaction(t, a, db, nil)
		const many = 1000 // pages of rows are split, and the transaction must not wait for itself then
		for i := range many {
			take(t, tx, fmt.Sprint("order ", i))
		}
		must(t, tx.Commit())
		for _, aged := range []string{
			"UPDATE fencelock_swap SET last = last - 90000000000, line = REPLACE(line, '\"token\":17', '\"token\":16')",
			"UPDATE fencelock_binding SET since = since - 90000000000",
		} {
			if s.dialect == sqllock.MySQL || !strings.Contains(aged, "binding") {
				s.do(t, aged)
			}
		}
		s.forget(t)
		use(t, b, "order 7")
		s.forget(t)
		s.forget(t)
		tables := []string{"fencelock_swap WHERE line <> ''", "fencelock_lease WHERE ending > 0"}
		if s.dialect == sqllock.MySQL {
			tables = append(tables, "fencelock_binding")
		}
		for _, table := range tables {
			steps.Same(t, "rows of "+table, ask[int](t, s, "SELECT count(*) FROM "+table), 0)
		}
	})
}

// forget removes what is older than a day, as a process does once an hour.
func (s *store) forget(t testing.TB) {
	t.Helper()
	st := swapStore(s.db, s.dialect)
	stale, err := st.Forget(soon(t), time.Now().Add(-24*time.Hour).UnixMicro())
	must(t, err)
	for _, key := range stale {
		must(t, swaplock.New(st).Settle(soon(t), key))
	}
}

// TestFirstRenewalBesideForget: what has just been renewed is in line, also while others forget what is old.
func TestFirstRenewalBesideForget(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		a, b := s.polling(t), s.polling(t)
		use(t, a, "first")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		st := swapStore(s.open(t), s.dialect)
		forgetful := behind(func() error {
			for {
				if _, err := st.Forget(ctx, 0); ctx.Err() != nil {
					return nil // a statement that is cut short may fail in any way
				} else if err != nil {
					return err
				}
			}
		})
		for i := range 60 { // one of twelve was lost
			key := fmt.Sprint("k", i)
			h := hold(t, b, claim(key))
			w := enter(t, a, claim(key)) // behind another, it has no lease of its own yet
			renewed(t, a, w)
			renewed(t, a, w)
			leave(t, a, w)
			leave(t, b, h)
		}
		cancel()
		well(t, "Forget", <-forgetful)
	})
}

// TestIdleLinesAreForgottenAfterADay: each process has that done about once an hour.
func TestIdleLinesAreForgottenAfterADay(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		b := s.polling(t)
		for i := range 20 {
			use(t, b, fmt.Sprint("idle", i))
		}
		must(t, b.Leave(soon(t), hold(t, b, claim("marked")), driver.Exit{Mark: "done"}))
		inUse := hold(t, b, ttl(claim("in use"), time.Hour))
		hold(t, b, claim("dead"))
		s.recorded(t, b, hold(t, b, claim("dead too")))
		// All of a line becomes older: no claim has a token above the last one.
		s.do(t, "UPDATE fencelock_swap SET last = last - 90000000000, line = REPLACE(line, '\"token\":17', '\"token\":16'), "+
			"arrivals = REPLACE(arrivals, '\"token\":17', '\"token\":16') WHERE {name} <> 'idle7'")
		inUse.Token -= 1e14
		s.do(t, "UPDATE fencelock_swap SET expires = 1 WHERE {name} LIKE 'dead%'")
		s.do(t, "UPDATE fencelock_lease SET ending = 1")
		s.forget(t)
		s.forget(t)
		left := column[string](t, s.db, s.sql("SELECT {name} FROM fencelock_swap"))
		slices.Sort(left)
		// idle7 was in use less than a day ago.
		if want := []string{"idle7", "in use", "marked"}; !slices.Equal(left, want) {
			t.Errorf("the lines %q are left; want %q", left, want)
		}
		steps.Same(t, "leases are left", ask[int](t, s, "SELECT count(*) FROM fencelock_lease WHERE ending > 0"), 0)
		if l, err := b.Line(soon(t), "marked"); err != nil || l.Mark != "done" {
			t.Errorf("the mark is %q, %v; want it kept", l.Mark, err)
		}
		leave(t, b, inUse)
		empty(t, b)
	})
}

// TestForgettingHoldsUpNoLock: a program locks each order once, so there are many idle lines, and a transaction of
// somebody else has one of them. What removes the lines waits for that, and has no other row locked meanwhile.
func TestForgettingHoldsUpNoLock(t *testing.T) {
	each(t, []kind{postgres, mariaDB}, func(t *testing.T, s *store) {
		b := s.polling(t)
		for i := range 10 {
			use(t, b, fmt.Sprint("idle", i))
		}
		prefixed := "'%c' || lock_key"
		if s.dialect == sqllock.MySQL {
			prefixed = "CONCAT('%c', lock_key)"
		}
		for i := range 8 {
			s.do(t, fmt.Sprintf("INSERT INTO fencelock_swap SELECT "+prefixed+", version, last, mark, marked_by, holder, "+
				"expires, renewals, line, arrivals, came, open_until, capacity, news FROM fencelock_swap", 'q'+i))
		}
		s.do(t, "UPDATE fencelock_swap SET last = last - 90000000000")
		use(t, b, "busy")
		use(t, b, "zealous")
		tx, err := s.db.BeginTx(soon(t), nil)
		must(t, err)
		defer tx.Rollback()
		run(t, tx, "SELECT 1 FROM fencelock_swap WHERE lock_key = 'idle7' FOR UPDATE")
		forgotten := behind(func() error {
			return second(swapStore(s.open(t), s.dialect).Forget(soon(t), time.Now().Add(-24*time.Hour).UnixMicro()))
		})
		waits := "SELECT count(*) FROM pg_locks WHERE NOT granted"
		if s.dialect == sqllock.MySQL {
			waits = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
		}
		until(t, "the row is waited for", func() bool {
			pause(150 * time.Millisecond) // InnoDB does not look again for who asked within the last 100 ms
			return ask[int](t, s, waits) > 0
		})
		use(t, b, "busy")
		use(t, b, "zealous")
		well(t, "COMMIT", tx.Commit())
		well(t, "Forget", <-forgotten)
		left := column[string](t, s.db, s.sql("SELECT {name} FROM fencelock_swap"))
		slices.Sort(left)
		if want := []string{"busy", "zealous"}; !slices.Equal(left, want) {
			t.Errorf("%d lines are left, such as %.200q; want %q", len(left), left, want)
		}
	})
}

// TestCloseLeavesNothingBehind closes a Backend in the middle of everything, and then its
// pool: no goroutine, connection or prepared statement stays.
func TestCloseLeavesNothingBehind(t *testing.T) {
	for _, k := range all {
		t.Run(k.name, func(t *testing.T) { // alone: it counts goroutines
			s := k.store(t)
			use(t, s.polling(t), "k")
			ask[int](t, s, "SELECT 1")
			before := goleak.IgnoreCurrent()
			db := s.open(t)
			b := sqllock.New(db, s.dialect, options(s.dialect, s.pooled, s.dsn))
			holder, w := hold(t, b, claim("k")), wait(t, b, claim("k"))
			stop := b.Alarm(func(string, driver.GoneError) {})
			done := behind(func() error {
				var err error
				for err == nil { // Await answers about once a second
					_, err = b.Await(context.Background(), w)
				}
				return err
			})
			until(t, "the watch runs", func() bool {
				return goleak.Find(before, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener")) != nil
			})
			pause(100 * time.Millisecond) // and asks, where it does
			b.Close()
			if err := <-done; err != driver.ErrClosed {
				t.Errorf("Await during Close answered %v; want ErrClosed", err)
			}
			stop()
			well(t, "the program's database is not open any more", db.Ping())
			if s.dialect == sqllock.MySQL {
				var name string
				var n int
				err := s.db.QueryRow("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'").Scan(&name, &n)
				if err != nil || n != 0 {
					t.Errorf("%d statements are prepared, %v; want none", n, err)
				}
			}
			db.Close()
			until(t, "no goroutine is left", func() bool {
				err := goleak.Find(before)
				if err != nil {
					t.Log(err)
				}
				return err == nil
			})
			again := s.backend(t)
			leave(t, again, holder)
			leave(t, again, granted(t, again, w))
			empty(t, again)
		})
	}
}

// TestDamagedRowsAreAnErrorNotAPanic puts texts and numbers into the tables that no step writes. Whatever is
// answered, nobody crashes, and no second claim is let in.
func TestDamagedRowsAreAnErrorNotAPanic(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		for _, damage := range []string{
			"line = 'x'", `line = '{"format":2}'`, `line = '{"format":1,"claims":[{"id":7}]}'`, "arrivals = 'x'",
			"last = 9223372036854775807, version = version + 1", "last = 9223372036854775000, version = version + 1",
			"last = -1, version = version + 1",
		} {
			use(t, b, "k")
			holder := hold(t, b, claim("k"))
			s.do(t, "UPDATE fencelock_swap SET open_until = 0, "+damage)
			ctx := soon(t)
			ticket, err := b.Enter(ctx, claim("k"))
			if err == nil && ticket.Granted || err != nil && !permanent(err) {
				t.Errorf("%s: Enter answered %+v, %v; want ErrPermanent", damage, ticket, err)
			}
			b.Renew(ctx, []driver.Ticket{holder})
			brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			b.Await(brief, holder)
			cancel()
			b.Line(ctx, "k")
			for range b.Lines(ctx, "") {
			}
			b.Break(ctx, "k", holder.Token, driver.Break{})
			b.Leave(ctx, holder, driver.Exit{Mark: "m"})
			b.Leave(ctx, driver.Ticket{Claim: holder.Claim}, driver.Exit{Tombstone: true})
			s.do(t, "DELETE FROM fencelock_swap")
			s.do(t, "DELETE FROM fencelock_lease")
		}
	})
}

// TestRowsDeletedByHandWakeTheNext: an operator with an SQL shell deletes the row of the line. Those who waited
// enter again.
func TestRowsDeletedByHandWakeTheNext(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		holder, w := hold(t, b, claim("k")), wait(t, b, claim("k"))
		s.do(t, "DELETE FROM fencelock_swap")
		gone(t, "Leave of the deleted claim", b.Leave(soon(t), holder, driver.Exit{}))
		until(t, "who waits is told that its claim is gone", func() bool {
			_, err := b.Await(soon(t), w)
			return driver.Gone(err)
		})
		use(t, b, "k")
	})
}
