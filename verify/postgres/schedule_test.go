package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// session is a transaction of somebody else, that goes on while steps run.
type session struct {
	t    testing.TB
	conn *pgx.Conn
}

// begin runs statements in a transaction, and leaves it open.
func begin(t testing.TB, url string, statements ...string) *session {
	t.Helper()
	conn, err := pgx.Connect(soon(t), url)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t, conn}
	t.Cleanup(func() { conn.Close(context.Background()) })
	for _, text := range append([]string{"BEGIN ISOLATION LEVEL READ COMMITTED"}, statements...) {
		s.do(text)
	}
	return s
}

func (s *session) do(text string, args ...any) {
	s.t.Helper()
	if _, err := s.conn.Exec(soon(s.t), text, args...); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
}

// end commits.
func (s *session) end() {
	s.t.Helper()
	s.do("COMMIT")
	s.conn.Close(soon(s.t))
}

// blocked waits until a step waits for a lock, and returns the pid of its session.
func blocked(t testing.TB, url string) (pid int) {
	t.Helper()
	conn, err := pgx.Connect(soon(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	until(t, "a step waits for a lock", func() bool {
		err := conn.QueryRow(soon(t), `SELECT pid FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' LIMIT 1`).Scan(&pid)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return err == nil
	})
	return pid
}

// isolations are what a role or a DSN may ask for.
var isolations = map[string]string{
	"ReadCommitted":  "default_transaction_isolation=read committed",
	"RepeatableRead": "default_transaction_isolation=repeatable read",
	"Serializable":   "default_transaction_isolation=serializable",
}

// placed runs f under each isolation twice: with a claim in the row of its line, and with one
// that was moved to the others. put makes it so, and table is where the claim is then.
func placed(t *testing.T, f func(t *testing.T, url, table string, put func(b *sqllock.Backend, key string))) {
	t.Helper()
	for name, param := range isolations {
		t.Run(name+"/Alone", func(t *testing.T) {
			t.Parallel()
			f(t, newURL(t, param), "fencelock_line", func(*sqllock.Backend, string) {})
		})
		t.Run(name+"/Moved", func(t *testing.T) {
			t.Parallel()
			f(t, newURL(t, param), "fencelock_claim", func(b *sqllock.Backend, key string) { move(t, b, key) })
		})
	}
}

// move has somebody try the lock on key, which moves the claim out of the row of its line.
func move(t testing.TB, b *sqllock.Backend, key string) {
	t.Helper()
	if _, err := b.Enter(soon(t), noWait(claim(key))); !errors.As(err, new(*driver.BusyError)) {
		t.Fatalf("a try on %q, which is held, was answered with %v", key, err)
	}
}

// enterSQL is an Enter as another process sends it, with a lease in seconds.
func enterSQL(key, id string, seconds int) string {
	return fmt.Sprintf("SELECT * FROM fencelock_enter('%s', '%s', 1048576, 1048576, %d, false, 1, 7, '', '')", key, id, seconds*1000000)
}

// TestStepSeesWhatItWaitedFor has an Enter wait for another that commits late: with a
// snapshot from before, it would not see the other's claim, and there were two holders.
func TestStepSeesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	for name, param := range isolations {
		for _, line := range []string{"NewLine", "OldLine"} {
			t.Run(name+line, func(t *testing.T) {
				t.Parallel()
				url := newURL(t, param)
				b := backend(t, openURL(t, url))
				leave(t, b, hold(t, b, claim("other")))
				if line == "OldLine" {
					leave(t, b, hold(t, b, claim("k")))
				}
				x := begin(t, url, enterSQL("k", "x", 60))
				got := make(chan driver.Ticket)
				go func() { got <- enter(t, b, claim("k")) }()
				blocked(t, url)
				x.end()
				ticket := <-got
				if ticket.Granted {
					t.Fatalf("two claims hold the lock: the second did not see the first, which it had waited for")
				}
				if ticket.Head == nil || ticket.Token <= ticket.Head.Token {
					t.Errorf("token %d is drawn behind %+v; want a larger one", ticket.Token, ticket.Head)
				}
				// The same with a Leave that commits late.
				x = begin(t, url, "SELECT * FROM fencelock_leave('k', 'x', '', 0, 0, 7)")
				third := make(chan driver.Ticket)
				go func() { third <- enter(t, b, claim("k")) }()
				blocked(t, url)
				x.end()
				behind := <-third
				if behind.Granted {
					t.Errorf("a claim was granted past one that was granted by a step before it")
				}
				leave(t, b, granted(t, b, ticket))
				leave(t, b, granted(t, b, behind))
				empty(t, b)
				sane(t, openURL(t, url))
			})
		}
	}
}

// TestRestKeepsOutAnEnterThatWaited has a Leave lay an id to rest, and commit late, while
// the Enter of that id waits for it: the claim would be a ghost that nobody leaves.
func TestRestKeepsOutAnEnterThatWaited(t *testing.T) {
	t.Parallel()
	for name, param := range isolations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newURL(t, param)
			b := backend(t, openURL(t, url))
			leave(t, b, hold(t, b, claim("k")))
			c := claim("k")
			x := begin(t, url)
			x.do("SELECT * FROM fencelock_leave('k', $1, '', 0, 60000000, 7)", []byte(c.ID))
			got := make(chan error)
			go func() { got <- second(b.Enter(soon(t), c)) }()
			blocked(t, url)
			x.end()
			if err := <-got; !driver.Gone(err) {
				t.Errorf("an Enter after its Leave answered %v; want ErrGone", err)
			}
			empty(t, b)
		})
	}
}

// TestRenewalInTimeThatCommitsLateCounts has a lease renewed in time by a transaction that
// is still open when the lease has passed. Who comes then has to wait for it: it must not be
// told that the lock is free, and the holder that it is renewed.
func TestRenewalInTimeThatCommitsLateCounts(t *testing.T) {
	t.Parallel()
	placed(t, func(t *testing.T, url, _ string, put func(*sqllock.Backend, string)) {
		b := backend(t, openURL(t, url))
		holder := hold(t, b, ttl(claim("k"), 500*time.Millisecond))
		put(b, "k")
		x := begin(t, url)
		x.do("SELECT * FROM fencelock_renew($1, $2, $3, '{60000000}')",
			fmt.Sprintf("{%x}", holder.Key), fmt.Sprintf("{%d}", holder.Token), fmt.Sprintf("{%x}", holder.ID))
		timer := time.NewTimer(600 * time.Millisecond)
		<-timer.C
		got := make(chan error)
		go func() { got <- second(b.Enter(soon(t), noWait(claim("k")))) }()
		blocked(t, url)
		x.end()
		var busy *driver.BusyError
		if err := <-got; !errors.As(err, &busy) {
			t.Errorf("Enter beside a renewal that commits late answered %v; want a refusal", err)
		}
		if err := b.Renew(soon(t), []driver.Ticket{holder})[0]; err != nil {
			t.Errorf("Renew: %v", err)
		}
		leave(t, b, holder)
		empty(t, b)
	})
}

// TestRenewalThatWaitedBeyondItsLeaseIsGone has somebody else's change of the row keep a
// renewal waiting until the lease has passed.
func TestRenewalThatWaitedBeyondItsLeaseIsGone(t *testing.T) {
	t.Parallel()
	placed(t, func(t *testing.T, url, table string, put func(*sqllock.Backend, string)) {
		b := backend(t, openURL(t, url))
		const lease = 2 * time.Second
		holder := hold(t, b, ttl(claim("k"), lease))
		put(b, "k")
		x := begin(t, url, "SELECT 1")
		// What came before may have taken most of the lease.
		if err := b.Renew(soon(t), []driver.Ticket{holder})[0]; err != nil {
			t.Fatal(err)
		}
		x.do("UPDATE " + table + " SET note = 'changed'")
		got := make(chan error)
		go func() { got <- b.Renew(soon(t), []driver.Ticket{holder})[0] }()
		blocked(t, url)
		timer := time.NewTimer(lease + 100*time.Millisecond)
		<-timer.C
		x.end()
		if err := <-got; !driver.Gone(err) {
			t.Errorf("Renew that waited until its lease had passed answered %v; want ErrGone", err)
		}
		leave(t, b, hold(t, b, claim("k")))
		empty(t, b)
	})
}

// TestAwaitAnswersOnlyWhatWasRead holds up the database for longer than Await waits. What it
// answers then is not what its caller knew before.
func TestAwaitAnswersOnlyWhatWasRead(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	b := backend(t, openURL(t, url))
	holder := hold(t, b, claim("k"))
	gone, waits := enter(t, b, claim("k")), enter(t, b, claim("k"))
	leave(t, b, gone)
	x := begin(t, url, "LOCK TABLE fencelock_line, fencelock_claim IN ACCESS EXCLUSIVE MODE")
	type answer struct {
		t   driver.Ticket
		err error
	}
	await := func(ctx context.Context, ticket driver.Ticket) <-chan answer {
		got := make(chan answer, 1)
		go func() {
			now, err := b.Await(ctx, ticket)
			got <- answer{now, err}
		}()
		return got
	}
	ofGone, ofWaiting := await(soon(t), gone), await(soon(t), waits)
	timer := time.NewTimer(1500 * time.Millisecond)
	select {
	case a := <-ofGone:
		t.Errorf("Await of a claim that has left answered (%+v, %v) before the database did", a.t, a.err)
	case a := <-ofWaiting:
		t.Errorf("Await of a claim that waits answered (%+v, %v) before the database did", a.t, a.err)
	case <-timer.C:
	}
	x.end()
	if t.Failed() {
		return
	}
	if a := <-ofGone; !driver.Gone(a.err) {
		t.Errorf("Await of a claim that has left answered (%+v, %v); want ErrGone", a.t, a.err)
	}
	a := <-ofWaiting
	if a.err != nil || a.t.Granted || a.t.Ahead != 1 || a.t.Head == nil || a.t.Head.Token != holder.Token {
		t.Errorf("Await of a claim that waits answered (%+v, %v); want it behind %+v", a.t, a.err, holder)
	}
	leave(t, b, holder)
	leave(t, b, granted(t, b, waits))
}

// TestDeadlockIsTriedAgain crosses a renewal of two claims with a transaction that locks
// them the other way round. The renewal is the victim, for it looks for deadlocks first.
func TestDeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, w way) {
		do(t, w.direct, "ALTER DATABASE "+databaseOf(t, w.direct)+" SET deadlock_timeout = '1500ms'")
		b := backend(t, openURL(t, w.url))
		one, two := hold(t, b, claim("1")), hold(t, b, claim("2"))
		move(t, b, "1")
		move(t, b, "2")
		x := begin(t, with(t, w.direct, "", "deadlock_timeout=10min"), "UPDATE fencelock_claim SET note = '' WHERE key = '2'")
		got := make(chan []error)
		go func() { got <- b.Renew(soon(t), []driver.Ticket{two, one}) }()
		blocked(t, w.direct)
		x.do("UPDATE fencelock_claim SET note = '' WHERE key = '1'")
		x.end()
		for _, err := range <-got {
			if err != nil {
				t.Errorf("Renew that was a deadlock's victim: %v; want it to be tried again", err)
			}
		}
		count, n := openURL(t, w.direct), 0
		until(t, "the server has counted the deadlock", func() bool {
			return count.QueryRow("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n) == nil && n > 0
		})
		leave(t, b, one)
		leave(t, b, two)
		empty(t, b)
	})
}

// TestLockTimeoutIsTriedAgain has a role that waits for locks for a moment only.
func TestLockTimeoutIsTriedAgain(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	b := backend(t, openURL(t, with(t, url, "", "lock_timeout=10ms")))
	holder := hold(t, b, claim("k"))
	x := begin(t, url, "SELECT * FROM fencelock_line FOR UPDATE")
	got := make(chan driver.Ticket)
	go func() { got <- enter(t, b, claim("k")) }()
	timer := time.NewTimer(200 * time.Millisecond)
	<-timer.C
	x.end()
	w := <-got
	leave(t, b, holder)
	leave(t, b, granted(t, b, w))
	empty(t, b)
}

// TestRenewalsNeverDeadlock renews the same claims in both orders at once. Half of them are
// alone in their lines, and somebody else's tries move one after the other.
func TestRenewalsNeverDeadlock(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	b := backend(t, openURL(t, with(t, url, "", "deadlock_timeout=50ms")))
	var there, back []driver.Ticket
	for i := range 200 {
		c := claim(fmt.Sprint("k", i%4))
		c.Weight = 1
		if i%2 > 0 {
			c = claim(fmt.Sprint("k", i))
		}
		ticket := hold(t, b, c)
		there, back = append(there, ticket), append([]driver.Ticket{ticket}, back...)
	}
	done := make(chan struct{})
	began := time.Now()
	for _, ts := range [][]driver.Ticket{there, back} {
		go func() {
			defer func() { done <- struct{}{} }()
			for time.Since(began) < time.Second {
				for _, err := range b.Renew(soon(t), ts) {
					if err != nil {
						t.Error(err)
						return
					}
				}
			}
		}()
	}
	for i := 1; i < len(there); i += 2 {
		move(t, b, there[i].Key)
	}
	<-done
	<-done
	for _, ticket := range there {
		leave(t, b, ticket)
	}
	var n int
	if err := openURL(t, url).QueryRow("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n); err != nil || n > 0 {
		t.Errorf("%d deadlocks, %v; want none", n, err)
	}
	empty(t, b)
}

// TestSessionKilledByAnAdmin ends the session of each step while it waits for a lock.
func TestSessionKilledByAnAdmin(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, w way) {
		b := backend(t, openURL(t, w.url))
		holder := hold(t, b, claim("k"))
		c := claim("k")
		for _, step := range []struct {
			name, lock string
			do         func(ctx context.Context) error
		}{
			{"Enter", "SELECT * FROM fencelock_line FOR UPDATE", func(ctx context.Context) error { return second(b.Enter(ctx, c)) }},
			{"Renew", "SELECT * FROM fencelock_line FOR UPDATE", func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{holder})[0] }},
			{"Leave", "SELECT * FROM fencelock_line FOR UPDATE", func(ctx context.Context) error { return b.Leave(ctx, holder, driver.Exit{}) }},
			{"Break", "SELECT * FROM fencelock_line FOR UPDATE", func(ctx context.Context) error { return b.Break(ctx, "k", holder.Token, "") }},
		} {
			x := begin(t, w.direct, step.lock)
			got := make(chan error)
			go func() { got <- step.do(soon(t)) }()
			do(t, w.direct, "SELECT pg_terminate_backend($1)", blocked(t, w.direct))
			err := <-got
			var permanent *driver.PermanentError
			if err == nil || errors.As(err, &permanent) || driver.Gone(err) {
				t.Errorf("%s whose session was killed answered %v; want an error that leaves it open", step.name, err)
			}
			x.end()
			if l, err := b.Line(soon(t), "k"); err != nil || len(l.Claims) != 1 {
				t.Errorf("%d claims are in line, %v; want one: %s was rolled back", len(l.Claims), err, step.name)
			}
		}
		leave(t, b, holder)
		empty(t, b)
	})
}

// TestListenerKilledByAnAdmin ends the connection that listens. Another one is made, and
// nobody who waits meanwhile waits long.
func TestListenerKilledByAnAdmin(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	a, b := listening(t, url), listening(t, url)
	handOvers(t, a, b)
	do(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'")
	handOvers(t, a, b)
}

// TestListenThatFails has Listen functions that get no connection, lose it, or hang: those
// who wait ask then, as without one.
func TestListenThatFails(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]func(ctx context.Context, channel string, heard func()) error{
		"AtOnce": func(context.Context, string, func()) error { return errors.New("no") },
		"Later": func(ctx context.Context, _ string, heard func()) error {
			heard()
			return errors.New("no")
		},
		"Hangs": func(ctx context.Context, _ string, _ func()) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newURL(t)
			open := func() *sqllock.Backend {
				b := sqllock.New(openURL(t, url), sqllock.Postgres, &sqllock.Options{CreateTables: true, Listen: listen})
				t.Cleanup(func() { b.Close() })
				return b
			}
			handOvers(t, open(), open())
		})
	}
}

// TestRowsDeletedByHandWakeTheNext is what an operator with an SQL shell does.
func TestRowsDeletedByHandWakeTheNext(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	b := backend(t, openURL(t, url))
	holder := hold(t, b, claim("k"))
	w := wait(t, b, claim("k"))
	do(t, url, "DELETE FROM fencelock_claim WHERE token = $1", holder.Token)
	w = granted(t, b, w)
	do(t, url, "UPDATE fencelock_claim SET token = token + 3600000000") // the clock was set back since
	w.Token += 3600000000
	if err := b.Leave(soon(t), holder, driver.Exit{}); !driver.Gone(err) {
		t.Errorf("Leave of the deleted claim answered %v; want ErrGone", err)
	}
	do(t, url, "DELETE FROM fencelock_line")
	next := wait(t, b, claim("k"))
	if next.Token <= w.Token {
		t.Errorf("token %d after %d: the claims in line were forgotten with the line's row", next.Token, w.Token)
	}
	leave(t, b, w)
	leave(t, b, granted(t, b, next))
	empty(t, b)
}

// TestDamagedRowsAreAnErrorNotAPanic puts rows into the tables that no step writes.
func TestDamagedRowsAreAnErrorNotAPanic(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	b := backend(t, openURL(t, url))
	leave(t, b, hold(t, b, claim("k")))
	do(t, url, `DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'fencelock_claim'::regclass AND contype = 'c' LOOP
			EXECUTE 'ALTER TABLE fencelock_claim DROP CONSTRAINT ' || c.conname;
		END LOOP; END $$`)
	for _, damage := range []string{
		"UPDATE fencelock_claim SET weight = 1::bigint << 62",
		"UPDATE fencelock_claim SET capacity = 1::bigint << 62",
		"UPDATE fencelock_claim SET token = 9223372036854775807",
		"UPDATE fencelock_claim SET span = 9223372036854775807",
		"UPDATE fencelock_line SET last = 9223372036854775807",
		"UPDATE fencelock_line SET last = 9223372036854775000",
		"UPDATE fencelock_line SET weight = 1::bigint << 62",
		"UPDATE fencelock_line SET capacity = 1::bigint << 62",
		"UPDATE fencelock_line SET span = 1::bigint << 62",
		"UPDATE fencelock_line SET span = -9223372036854775807",
	} {
		holder := hold(t, b, claim("k"))
		if strings.Contains(damage, "fencelock_claim") {
			move(t, b, "k")
		}
		do(t, url, damage)
		ctx := soon(t)
		// Whatever it answers, it may not crash, and may not let a second one in.
		ticket, err := b.Enter(ctx, claim("k"))
		if err == nil && ticket.Granted {
			t.Errorf("%s: a second claim was granted beside a damaged one", damage)
		}
		b.Renew(ctx, []driver.Ticket{holder})
		brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		b.Await(brief, holder)
		cancel()
		b.Line(ctx, "k")
		for range b.Lines(ctx, "") {
		}
		b.Break(ctx, "k", holder.Token, "")
		b.Leave(ctx, holder, driver.Exit{Mark: "m"})
		b.Leave(ctx, driver.Ticket{Claim: holder.Claim}, driver.Exit{})
		// What the error says to do helps.
		do(t, url, "DELETE FROM fencelock_claim")
		do(t, url, "DELETE FROM fencelock_line")
		leave(t, b, hold(t, b, claim("k")))
	}
}

// TestClockIsReadAfterTheWait has an Enter wait for the lock on its line until a lease in
// it has ended: by the clock from before the wait it would be refused, and by a clock of
// each row two claims could be judged differently.
func TestClockIsReadAfterTheWait(t *testing.T) {
	t.Parallel()
	for name, param := range isolations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newURL(t, param)
			b := backend(t, openURL(t, url))
			hold(t, b, ttl(claim("k"), 500*time.Millisecond))
			x := begin(t, url, "SELECT * FROM fencelock_line FOR UPDATE")
			got := make(chan driver.Ticket)
			go func() {
				ticket, err := b.Enter(soon(t), noWait(claim("k")))
				if err != nil {
					t.Errorf("Enter that waited until the lease ahead had ended: %v", err)
				}
				got <- ticket
			}()
			blocked(t, url)
			timer := time.NewTimer(600 * time.Millisecond)
			<-timer.C
			x.end()
			if ticket := <-got; ticket.Granted {
				leave(t, b, ticket)
			}
			empty(t, b)
		})
	}
}

// TestTokensRiseWhenTheClockIsSetBack moves the counter, which is the same.
func TestTokensRiseWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	b := backend(t, openURL(t, url))
	holder := hold(t, b, claim("k"))
	do(t, url, "UPDATE fencelock_line SET last = last + 3600000000")
	w := wait(t, b, claim("k"))
	if want := holder.Token + 3600000000; w.Token <= want {
		t.Errorf("token %d is drawn after %d", w.Token, want)
	}
	leave(t, b, holder)
	leave(t, b, granted(t, b, w))
	empty(t, b)
}
