package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
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
	w = granted(t, b, w)
	steps.Same(t, "the mark", w.Mark, "left once")
	leave(t, b, w)
	empty(t, b)
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
		steps.Same(t, "deadlocks", s.deadlocks(t), 0)
		leave(t, bs[0], there...)
		empty(t, bs[0])
	})
}

// TestBatchesOfNewKeysNeverDeadlock: two processes are the first on the same keys, and each makes many of them in one
// statement, while somebody else has inserted one of them and not yet committed. The server does not look for deadlocks, so one would end with the calls.
func TestBatchesOfNewKeysNeverDeadlock(t *testing.T) {
	eachServer(t, []kind{postgres.with("Patient", "deadlock_timeout=10min")}, func(t *testing.T, s *store) {
		bs := []*sqllock.Backend{s.polling(t), s.polling(t)}
		for _, b := range bs {
			use(t, b, "k")
		}
		first, second := s.begin(t), s.begin(t)
		insert := func(by *session, key string) {
			by.do("INSERT INTO fencelock_swap VALUES (?, 1, 0, '', '', '', 0, 0, '', '', 0, 0, 0, '')", key)
		}
		const held = 5 // four statements, and a batch, so that all others go in batches
		for i := range held {
			insert(first, fmt.Sprint("held", i))
		}
		insert(second, "k40")
		var calls sync.WaitGroup
		enter := func(b *sqllock.Backend, key string) {
			calls.Go(func() {
				ticket, err := b.Enter(soon(t), reader(key))
				well(t, key, err)
				well(t, key, b.Leave(soon(t), ticket, driver.Exit{}))
			})
		}
		for i := range held {
			for n, b := range bs {
				enter(b, fmt.Sprint("held", i))
				s.settled(t, len(bs)*i+n+1)
			}
		}
		for i := range 64 {
			enter(bs[0], fmt.Sprint("k", i))
			enter(bs[1], fmt.Sprint("k", 63-i))
		}
		enter(bs[0], "k64") // the newest goroutine may run first
		enter(bs[1], "k65")
		until(t, "all statements wait, also the second batches", func() bool {
			return ask[int](t, s, "SELECT count(*) FROM pg_locks WHERE NOT granted") == len(bs)*(held+1)
		})
		second.end()
		first.end()
		calls.Wait()
		empty(t, bs[0])
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

// session is a transaction of somebody else, which goes on while steps run.
type session struct {
	t    testing.TB
	s    *store
	conn *sql.Conn
}

// begin runs statements in a transaction, and leaves it open.
func (s *store) begin(t testing.TB, statements ...string) *session {
	t.Helper()
	conn, err := s.db.Conn(soon(t))
	must(t, err)
	x := &session{t, s, conn}
	t.Cleanup(func() { conn.Close() })
	for _, text := range append([]string{"BEGIN"}, statements...) {
		x.do(text)
	}
	return x
}

func (x *session) do(text string, args ...any) {
	x.t.Helper()
	run(x.t, x.conn, x.s.sql(text), args...)
}

// end commits.
func (x *session) end() {
	x.t.Helper()
	x.do("COMMIT")
	x.conn.Close()
}

// undo rolls back.
func (x *session) undo() {
	x.t.Helper()
	x.do("ROLLBACK")
	x.conn.Close()
}

// blocked waits until a step waits for a row, and returns the number of its session. MariaDB
// does not say so: there a statement that stands still is one that waits, if nobody else is at
// work.
func (s *store) blocked(t testing.TB) (id int64) {
	t.Helper()
	query, often := `SELECT pid FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' LIMIT 1`, 0
	if s.dialect == sqllock.MySQL {
		query, often = `SELECT id FROM information_schema.processlist
			WHERE db = DATABASE() AND command = 'Query' AND id <> CONNECTION_ID()`, 20
	}
	seen := 0
	until(t, "a step waits for a row", func() bool {
		var now int64
		err := s.db.QueryRow(query).Scan(&now)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			t.Fatal(err)
		case err != nil:
			id, seen = 0, 0
		case now != id:
			id, seen = now, 1
		default:
			seen++
		}
		return seen > often
	})
	return id
}

// lockLine is a statement that locks all lines, lockClaims one that locks all leases with rows of their own.
const (
	lockLine   = "SELECT * FROM fencelock_swap FOR UPDATE"
	lockClaims = "SELECT * FROM fencelock_lease FOR UPDATE"
)

// enterSQL is an Enter of a line that nobody is in, as another process sends it.
func (s *store) enterSQL(key, id string) string {
	const columns = "(lock_key, version, last, mark, marked_by, holder, expires, renewals, line, arrivals, came, open_until, capacity, news)"
	line := `{"format":1,"claims":[{"id":"` + id + `","token":', ? , ',"ttl":"1m0s","granted":true}]}`
	token := "CAST({now} AS SIGNED)"
	set := "ON DUPLICATE KEY UPDATE version = version + 1, last = VALUES(last), holder = VALUES(holder), expires = VALUES(expires), line = VALUES(line)"
	if s.dialect == sqllock.Postgres {
		token = "{now}::bigint"
		set = "ON CONFLICT (lock_key) DO UPDATE SET version = l.version + 1, last = excluded.last, holder = excluded.holder, " +
			"expires = excluded.expires, line = excluded.line"
	}
	return "INSERT INTO fencelock_swap " + map[bool]string{true: "AS l "}[s.dialect == sqllock.Postgres] + columns +
		" SELECT '" + key + "', n.now, n.now, '', '', '" + id + "', n.now + 60000000, 0, CONCAT('" +
		strings.ReplaceAll(line, "?", "n.now") + "'), '', 0, 0, 1048576, '' FROM (SELECT " + token + " AS now) n WHERE 1 = 1 " + set
}

// tombstoneSQL is a Leave of a claim that is not there, as another process sends it. It keeps the ID out.
func tombstoneSQL(key, id string) string {
	return "UPDATE fencelock_swap SET version = version + 1, holder = '', expires = 0, open_until = 0, line = '" +
		`{"format":1,"tombstones":[{"id":"` + id + `","until":"2200-01-01T00:00:00Z","reason":"it has left"}]}` +
		"' WHERE lock_key = '" + key + "'"
}
