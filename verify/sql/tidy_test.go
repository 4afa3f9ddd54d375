package sql_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/swaplock"
)

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
		st := swapStore(s.db, s.dialect)
		for range 2 {
			stale, err := st.Forget(soon(t), time.Now().Add(-24*time.Hour).UnixMicro())
			must(t, err)
			for _, key := range stale {
				must(t, swaplock.New(st).Settle(soon(t), key))
			}
		}
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

// TestTombstonesAreForgotten: each write of a line leaves out those that are over.
func TestTombstonesAreForgotten(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		c := claim("k")
		gone(t, "Leave of nobody", b.Leave(soon(t), driver.Ticket{Claim: ttl(c, 100*time.Millisecond)}, driver.Exit{Tombstone: true}))
		gone(t, "an Enter after its Leave", second(b.Enter(soon(t), c)))
		until(t, "no tombstone is left", func() bool {
			leave(t, b, hold(t, b, reader("k")))
			return ask[int](t, s, "SELECT count(*) FROM fencelock_swap WHERE line <> ''") == 0
		})
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
			goleak.VerifyNone(t, before)
			again := s.backend(t)
			leave(t, again, holder)
			leave(t, again, granted(t, again, w))
			empty(t, again)
		})
	}
}
