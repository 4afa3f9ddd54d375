package sql_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// deadlocks is how many the database has had; MariaDB counts those of its server.
func (s *store) deadlocks(t testing.TB) int {
	t.Helper()
	switch {
	case s.dialect == sqllock.Postgres:
		return ask[int](t, s, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
	case onMySQL(t, s):
		return ask[int](t, s, `SELECT count FROM information_schema.innodb_metrics
			WHERE name = 'lock_deadlocks' AND status = 'enabled'`)
	}
	return ask[int](t, s, `SELECT variable_value FROM information_schema.global_status
		WHERE variable_name = 'INNODB_DEADLOCKS'`)
}

// TestDeadlockIsTriedAgain crosses a step with a transaction that locks rows the other way
// round, and has the server choose the step as the victim.
func TestDeadlockIsTriedAgain(t *testing.T) {
	each(t, []kind{postgres, pgBouncer, mariaDB}, func(t *testing.T, s *store) {
		if s.dialect == sqllock.MySQL {
			leaveIsTheVictim(t, s)
		} else {
			renewIsTheVictim(t, s)
		}
	})
}

// renewIsTheVictim has a renewal look for deadlocks before the transaction does.
func renewIsTheVictim(t *testing.T, s *store) {
	s.do(t, "ALTER DATABASE "+s.name+" SET deadlock_timeout = '1500ms'")
	b := s.polling(t)
	one, two := hold(t, b, claim("1")), hold(t, b, claim("2"))
	x := s.begin(t, "SET LOCAL deadlock_timeout = '10min'", "UPDATE fencelock_swap SET mark = mark WHERE lock_key = '2'")
	renewed := behind(func() []error { return b.Renew(soon(t), []driver.Ticket{two, one}) })
	s.blocked(t)
	x.do("UPDATE fencelock_swap SET mark = mark WHERE lock_key = '1'")
	x.end()
	for _, err := range <-renewed {
		well(t, "Renew that was a deadlock's victim", err)
	}
	until(t, "the server has counted the deadlock", func() bool { return s.deadlocks(t) > 0 })
	leave(t, b, one, two)
	empty(t, b)
}

// leaveIsTheVictim has the transaction change more than the Leave.
func leaveIsTheVictim(t *testing.T, s *store) {
	b := s.polling(t)
	holder := s.recorded(t, b, hold(t, b, claim("k")))
	w := wait(t, b, claim("k"))
	s.do(t, "CREATE TABLE app_heavy (a INT) ENGINE = InnoDB")
	x := s.begin(t,
		`INSERT INTO app_heavy WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 71)
			SELECT a.i FROM n a, n b`,
		"SELECT * FROM fencelock_lease WHERE of_key = 'k' FOR UPDATE")
	left := behind(func() error { return b.Leave(soon(t), holder, driver.Exit{Mark: "left once"}) })
	s.blocked(t)
	// It has the line and wants the lease; this has the lease and wants the line.
	x.do("SELECT * FROM fencelock_swap WHERE lock_key = 'k' FOR UPDATE")
	select {
	case err := <-left:
		t.Fatalf("Leave answered %v while the program has the line; want it to be tried again", err)
	default:
	}
	x.end()
	well(t, "Leave, which was the victim of a deadlock", <-left)
	if w = granted(t, b, w); w.Mark != "left once" {
		t.Errorf("the mark is %q", w.Mark)
	}
	leave(t, b, w)
	empty(t, b)
	s.sane(t)
}

// TestRenewalsNeverDeadlock renews the same claims in both orders at once, while others open
// steps on all of the lines. On some of them nobody else is, and a step moves the claim.
func TestRenewalsNeverDeadlock(t *testing.T) {
	eachServer(t, []kind{postgres.with("Hasty", "deadlock_timeout=50ms"), mariaDB}, func(t *testing.T, s *store) {
		const keys = 60
		var bs []*sqllock.Backend
		for range 4 {
			bs = append(bs, s.polling(t))
		}
		var there []driver.Ticket
		for i := range keys {
			there = append(there, hold(t, bs[0], reader(fmt.Sprint("k", i))))
		}
		back := slices.Clone(there)
		slices.Reverse(back)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i, ts := range [][]driver.Ticket{there, back} {
			wg.Go(func() {
				for ctx.Err() == nil && !t.Failed() {
					for _, err := range bs[i].Renew(soon(t), ts) {
						well(t, "Renew", err)
					}
				}
			})
		}
		for i := range 4 {
			wg.Go(func() {
				for n := i; ctx.Err() == nil && !t.Failed(); n += 7 {
					b, key := bs[n%len(bs)], fmt.Sprint("k", n%(keys+keys/2)) // on some of them nobody else is
					ticket, err := b.Enter(soon(t), reader(key))
					if err == nil {
						err = renew(b, soon(t), ticket)
					}
					if err == nil {
						err = b.Leave(soon(t), ticket, driver.Exit{})
					}
					if err != nil {
						t.Errorf("a step on %s: %v", key, err)
					}
				}
			})
		}
		wg.Wait()
		if n := s.deadlocks(t); n > 0 {
			t.Errorf("%d deadlocks; want none", n)
		}
		leave(t, bs[0], there...)
		empty(t, bs[0])
		s.sane(t)
	})
}

// TestManyNewKeysAtOnce is what makes INSERT … ON DUPLICATE KEY UPDATE deadlock: many
// clients that are the first on one key. They all wait for one who has inserted it and not
// yet committed: he is then here, or thinks better of it.
func TestManyNewKeysAtOnce(t *testing.T) {
	eachServer(t, []kind{mariaDB}, func(t *testing.T, s *store) {
		var bs []*sqllock.Backend
		for range 4 {
			b := s.polling(t)
			use(t, b, "first")
			bs = append(bs, b)
		}
		for key, end := range map[string]func(*session){"committed": (*session).end, "undone": (*session).undo} {
			before := s.deadlocks(t)
			x := s.begin(t)
			x.do("INSERT INTO fencelock_swap VALUES (?, 1, 0, '', '', '', 0, 0, '', '', 0, 0, 0, '')", key)
			const clients = 8
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					b := bs[i%len(bs)]
					ticket, err := b.Enter(soon(t), reader(key))
					if err != nil || !ticket.Granted {
						t.Errorf("Enter of a new key by many answered granted %v, %v", ticket.Granted, err)
						return
					}
					leave(t, b, ticket)
				})
			}
			s.settled(t, clients)
			end(x)
			wg.Wait()
			// InnoDB cannot help it when an insert is taken back: those who waited for it all
			// share what it leaves, and all want to insert. They are tried again.
			n := s.deadlocks(t) - before
			t.Logf("%s: %d deadlocks", key, n)
			if key == "committed" && n > 0 {
				t.Errorf("%d of %d who entered a new key at once were victims of a deadlock; want none", n, clients)
			}
		}
		empty(t, bs[0])
	})
}
