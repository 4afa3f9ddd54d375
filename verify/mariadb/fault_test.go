package mariadb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestServerIsKilledAndComesBack ends the server as a crash does, under a holder, a
// waiter, and others that come and go.
func TestServerIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	dsn := dsnOf(s, "locks", "")
	mine, other := backend(t, openDSN(t, dsn)), backend(t, openDSN(t, dsn))
	holder := hold(t, mine, claim("k"))
	w := wait(t, other, claim("k"))
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	// As the core does: an error that is not an answer is no reason to give up.
	again := func(f func() error) error {
		for {
			err := f()
			var permanent *driver.PermanentError
			if err == nil || driver.Gone(err) || errors.As(err, &permanent) || ctx.Err() != nil {
				return err
			}
			timer := time.NewTimer(10 * time.Millisecond)
			<-timer.C
		}
	}
	var wg sync.WaitGroup
	var inside, held atomic.Int64
	stop := make(chan struct{})
	for i := range 4 {
		b := []*sqllock.Backend{mine, other}[i%2]
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c := claim("busy")
				var ticket driver.Ticket
				err := again(func() (err error) {
					ticket, err = b.Enter(ctx, c)
					return err
				})
				for err == nil && !ticket.Granted {
					err = again(func() error {
						got, err := b.Await(ctx, ticket)
						if err == nil {
							ticket = got
						}
						return err
					})
				}
				if err != nil {
					t.Errorf("Enter or Await: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d are inside at once", n)
				}
				held.Add(1)
				inside.Add(-1)
				// Leave that was applied before the crash answers ErrGone when repeated.
				if err := again(func() error { return b.Leave(ctx, ticket, driver.Exit{}) }); err != nil && !driver.Gone(err) {
					t.Errorf("Leave: %v", err)
					return
				}
			}
		})
	}
	until(t, "others come and go", func() bool { return held.Load() > 20 })
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := mine.Enter(ctx, claim("other"))
	var permanent *driver.PermanentError
	if err == nil || errors.As(err, &permanent) {
		t.Errorf("Enter without a server answered %v; want an error that may pass", err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	before := held.Load()
	until(t, "others come and go again", func() bool { return held.Load() > before+20 })
	close(stop)
	wg.Wait()
	if err := again(func() error { return mine.Renew(ctx, []driver.Ticket{holder})[0] }); err != nil {
		t.Errorf("Renew after the crash: %v; want the claim to be there again", err)
	}
	leave(t, mine, holder)
	leave(t, other, granted(t, other, w))
	empty(t, mine)
}

// TestManyNewKeysAtOnce is what makes INSERT … ON DUPLICATE KEY UPDATE deadlock: many
// clients that are the first on one key. They all wait for one who has inserted it and not
// yet committed: he is then here, or thinks better of it.
func TestManyNewKeysAtOnce(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t) // its own, for its count of deadlocks
	admin := openDSN(t, dsnOf(s, "", ""))
	p := program(t, openDSN(t, dsnOf(s, "locks", "")))
	var bs []*sqllock.Backend
	for range 4 {
		b := backend(t, openDSN(t, dsnOf(s, "locks", "")))
		leave(t, b, hold(t, b, claim("first")))
		bs = append(bs, b)
	}
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		before := deadlocks(t, admin)
		do(t, p, "BEGIN")
		do(t, p, "INSERT INTO fencelock_line (lock_key, last, front) VALUES (?, 0, 0)", end)
		const clients = 8
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				b := bs[i%len(bs)]
				ticket, err := b.Enter(soon(t), reader(end))
				if err != nil || !ticket.Granted {
					t.Errorf("Enter of a new key by many answered granted %v, %v", ticket.Granted, err)
					return
				}
				if err := b.Leave(soon(t), ticket, driver.Exit{}); err != nil {
					t.Error(err)
				}
			})
		}
		until(t, "all wait for the new key", func() bool {
			var n int
			if err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'locks' AND command = 'Query'").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == clients
		})
		do(t, p, end)
		wg.Wait()
		// InnoDB cannot help it when an insert is taken back: those who waited for it all
		// share what it leaves, and all want to insert. They are tried again.
		n := deadlocks(t, admin) - before
		t.Logf("%d deadlocks after %s", n, end)
		if end == "COMMIT" && n > 0 {
			t.Errorf("%d of %d who entered a new key at once were victims of a deadlock; want none", n, clients)
		}
	}
	empty(t, bs[0])
}

// deadlocks is how many a server has had.
func deadlocks(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	query := "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_DEADLOCKS'"
	if onMySQL(t, db) {
		query = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks' AND status = 'enabled'"
	}
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// program is a connection of somebody else, in a transaction.
func program(t testing.TB, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// blocked waits until a statement of a database stands still, which is one that waits for
// a row if nobody else is at work there, and returns the number of its connection.
func blocked(t testing.TB, admin *sql.DB, database string) (id int64) {
	t.Helper()
	seen := 0
	until(t, "a step waits for a row", func() bool {
		var now int64
		err := admin.QueryRow(`SELECT id FROM information_schema.processlist
			WHERE db = ? AND command = 'Query' AND id <> CONNECTION_ID()`, database).Scan(&now)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			t.Fatal(err)
		case err != nil || now != id:
			id, seen = now, 0
		default:
			seen++
		}
		return seen > 20
	})
	return id
}

// unlocked waits until nobody has a lock on k, neither on its line nor on its claims.
func unlocked(t testing.TB, conn *sql.Conn) {
	t.Helper()
	until(t, "nobody has rows of k locked", func() bool {
		do(t, conn, "BEGIN")
		defer do(t, conn, "ROLLBACK")
		for _, table := range []string{"line", "claim"} {
			_, err := conn.ExecContext(soon(t), "SELECT * FROM fencelock_"+table+" WHERE lock_key = 'k' FOR UPDATE NOWAIT")
			if err != nil {
				return false
			}
		}
		return true
	})
}

// TestDeadlocksVictimIsTriedAgain makes the server choose a step of ours as the victim,
// by a program that locks rows in the other order and has changed more.
func TestDeadlocksVictimIsTriedAgain(t *testing.T) {
	t.Parallel()
	name := newDatabase(t)
	dsn := dsnOf(server(t), name, "")
	db := openDSN(t, dsn)
	b := backend(t, db)
	ticket := hold(t, b, claim("k"))
	w := wait(t, b, claim("k"))
	do(t, db, "CREATE TABLE heavy (a INT) ENGINE = InnoDB")
	defer do(t, db, "DROP TABLE heavy")
	p := program(t, db)
	do(t, p, "BEGIN")
	do(t, p, "INSERT INTO heavy WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 71) SELECT a.i FROM n a, n b")
	do(t, p, "SELECT * FROM fencelock_claim WHERE lock_key = 'k' FOR UPDATE")
	done := make(chan error, 1)
	go func() { done <- b.Leave(soon(t), ticket, driver.Exit{Mark: "left once"}) }()
	admin := openDSN(t, dsnOf(server(t), "", ""))
	blocked(t, admin, name)
	// It has the line and wants the claims; this has the claims and wants the line.
	do(t, p, "SELECT * FROM fencelock_line WHERE lock_key = 'k' FOR UPDATE")
	select {
	case err := <-done:
		t.Fatalf("Leave answered %v while the program has the line; want it to be tried again", err)
	default:
	}
	do(t, p, "COMMIT")
	if err := <-done; err != nil {
		t.Errorf("Leave, which was the victim of a deadlock, answered %v", err)
	}
	w = granted(t, b, w)
	if w.Mark != "left once" {
		t.Errorf("the mark is %q", w.Mark)
	}
	leave(t, b, w)
	empty(t, b)
	sane(t, db)
}

// TestLockWaitTimeoutUndoesTheWholeStep lets a step wait for a row in its middle until
// the server gives up that statement, and looks that the rest of it is undone too.
func TestLockWaitTimeoutUndoesTheWholeStep(t *testing.T) {
	t.Parallel()
	name := newDatabase(t)
	db := openDSN(t, dsnOf(server(t), name, ""))
	b := backend(t, openDSN(t, dsnOf(server(t), name, "innodb_lock_wait_timeout=1")))
	ticket := hold(t, b, claim("k"))
	apart(t, b, "k")
	p := program(t, db)
	do(t, p, "BEGIN")
	do(t, p, "SELECT * FROM fencelock_claim WHERE lock_key = 'k' FOR UPDATE")
	// The mark is written before the claim is removed.
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	if err := b.Leave(ctx, ticket, driver.Exit{Mark: "too early"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Leave that cannot get through answered %v; want the end of its context", err)
	}
	// Its second attempt goes on at the server until it gives up as well.
	until(t, "nobody waits at the server", func() bool {
		var n int
		if err := db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND command = 'Query' AND id <> CONNECTION_ID()", name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	var marked int
	if err := db.QueryRow("SELECT COUNT(*) FROM fencelock_line WHERE mark IS NOT NULL").Scan(&marked); err != nil || marked != 0 {
		t.Errorf("the line has a mark of a step that did not happen, %v", err)
	}
	do(t, p, "ROLLBACK")
	if err := b.Renew(soon(t), []driver.Ticket{ticket})[0]; err != nil {
		t.Errorf("Renew: %v", err)
	}
	done := make(chan error, 1)
	do(t, p, "BEGIN")
	do(t, p, "SELECT * FROM fencelock_line WHERE lock_key = 'k' FOR UPDATE")
	go func() { done <- b.Leave(soon(t), ticket, driver.Exit{}) }()
	blocked(t, openDSN(t, dsnOf(server(t), "", "")), name)
	timer := time.NewTimer(1500 * time.Millisecond)
	<-timer.C
	do(t, p, "COMMIT")
	if err := <-done; err != nil {
		t.Errorf("Leave after a time-out of the lock answered %v; want it to be tried again", err)
	}
	empty(t, b)
}

// TestStepsAreKilledByAnAdministrator ends the statement, or the connection, of each kind
// of step while it has the line and waits for a claim.
func TestStepsAreKilledByAnAdministrator(t *testing.T) {
	for _, how := range []string{"QUERY", "CONNECTION"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			name := newDatabase(t)
			admin := openDSN(t, dsnOf(server(t), "", ""))
			db := openDSN(t, dsnOf(server(t), name, ""))
			b := backend(t, db)
			ticket := hold(t, b, claim("k"))
			apart(t, b, "k")
			p := program(t, openDSN(t, dsnOf(server(t), name, "")))
			for _, step := range []struct {
				name string
				f    func() error
			}{
				{"Enter", func() error { return second(b.Enter(soon(t), ticket.Claim)) }},
				{"Renew", func() error { return b.Renew(soon(t), []driver.Ticket{ticket})[0] }},
				{"Break", func() error { return b.Break(soon(t), "k", ticket.Token, "") }},
				{"Leave", func() error { return b.Leave(soon(t), ticket, driver.Exit{}) }},
			} {
				do(t, p, "BEGIN")
				do(t, p, "SELECT * FROM fencelock_claim WHERE lock_key = 'k' FOR UPDATE")
				done := make(chan error, 1)
				go func() { done <- step.f() }()
				do(t, admin, fmt.Sprintf("KILL %s %d", how, blocked(t, admin, name)))
				err := <-done
				var permanent *driver.PermanentError
				if err == nil || driver.Gone(err) || errors.As(err, &permanent) {
					t.Errorf("%s that was killed answered %v; want an error that leaves it open", step.name, err)
				}
				do(t, p, "ROLLBACK")
				// Nothing of it stays behind, above all no lock on the line.
				unlocked(t, p)
				if step.name == "Enter" || step.name == "Renew" {
					if err := step.f(); err != nil {
						t.Errorf("%s again: %v", step.name, err)
					}
				}
			}
			leave(t, b, ticket)
			empty(t, b)
		})
	}
}

// TestRowsDeletedByHandWakeTheNext is what an operator with an SQL shell does.
func TestRowsDeletedByHandWakeTheNext(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	b := backend(t, db)
	holder := hold(t, b, claim("k"))
	w := wait(t, b, claim("k"))
	do(t, db, "DELETE FROM fencelock_claim WHERE token = ?", holder.Token)
	w = granted(t, b, w)
	if err := b.Leave(soon(t), holder, driver.Exit{}); !driver.Gone(err) {
		t.Errorf("Leave of the deleted claim answered %v; want ErrGone", err)
	}
	leave(t, b, w)
	empty(t, b)
}

// TestDamageIsRefusedByTheDatabase puts rows into the tables that no step writes.
func TestDamageIsRefusedByTheDatabase(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	b := backend(t, db)
	holder := hold(t, b, claim("k"))
	refused := func(damage string) {
		t.Helper()
		var e *mysql.MySQLError
		if _, err := db.Exec(damage); !errors.As(err, &e) || e.Number != 4025 && e.Number != 3819 { // as MariaDB and MySQL number it
			t.Errorf("%s: %v; want the database to refuse it", damage, err)
		}
	}
	for _, damage := range []string{
		"UPDATE fencelock_line SET weight = -5",
		"UPDATE fencelock_line SET weight = 0",
		"UPDATE fencelock_line SET weight = 1 << 40",
		"UPDATE fencelock_line SET capacity = 1 << 40, weight = 1 << 40",
		"UPDATE fencelock_line SET span = 0",
		"UPDATE fencelock_line SET span = last + 1",
		"UPDATE fencelock_line SET front = last",
	} {
		refused(damage)
	}
	apart(t, b, "k")
	for _, damage := range []string{
		"UPDATE fencelock_claim SET weight = -5",
		"UPDATE fencelock_claim SET weight = 0",
		"UPDATE fencelock_claim SET weight = 1 << 40",
		"UPDATE fencelock_claim SET capacity = 1 << 40, weight = 1 << 40",
		"UPDATE fencelock_claim SET token = -1",
		"UPDATE fencelock_claim SET token = 9223372036854775807",
		"UPDATE fencelock_claim SET span = 0",
		"UPDATE fencelock_line SET last = 9223372036854775807",
		"UPDATE fencelock_line SET last = -1",
	} {
		refused(damage)
	}
	// The last number there is: an error, not a token from the beginning.
	do(t, db, "UPDATE fencelock_line SET last = 9223372036854710272")
	var permanent *driver.PermanentError
	if _, err := b.Enter(soon(t), claim("k")); !errors.As(err, &permanent) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("Enter at the end of all numbers answered %v; want a PermanentError", err)
	}
	leave(t, b, holder)
	if _, err := b.Enter(soon(t), claim("k")); !errors.As(err, &permanent) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("Enter of a free lock at the end of all numbers answered %v; want a PermanentError", err)
	}
	empty(t, b)
}

// TestRenewalThatCommitsLateIsSeen has a renewal that was in time commit after another
// step has read the line and found the claim expired: that step must look again before it
// gives the place away.
func TestRenewalThatCommitsLateIsSeen(t *testing.T) {
	t.Parallel()
	t.Run("KeptByTheLine", func(t *testing.T) { renewedLate(t, "line", func(*sqllock.Backend) {}) })
	t.Run("Apart", func(t *testing.T) { renewedLate(t, "claim", func(b *sqllock.Backend) { apart(t, b, "k") }) })
}

func renewedLate(t *testing.T, table string, prepare func(*sqllock.Backend)) {
	name := newDatabase(t)
	db := openDSN(t, dsnOf(server(t), name, ""))
	b := backend(t, db)
	holder := hold(t, b, claim("k"))
	prepare(b)
	do(t, db, "UPDATE fencelock_"+table+" SET expires = 1")
	p := program(t, db)
	do(t, p, "BEGIN")
	do(t, p, "UPDATE fencelock_"+table+" SET expires = (UNIX_TIMESTAMP() + 60) * 1000000")
	type answer struct {
		ticket driver.Ticket
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		ticket, err := b.Enter(soon(t), claim("k"))
		done <- answer{ticket, err}
	}()
	blocked(t, openDSN(t, dsnOf(server(t), "", "")), name)
	do(t, p, "COMMIT")
	got := <-done
	if got.err != nil || got.ticket.Granted {
		t.Fatalf("Enter beside a claim that was renewed in time answered granted %v, %v; want it to wait", got.ticket.Granted, got.err)
	}
	if err := b.Renew(soon(t), []driver.Ticket{holder})[0]; err != nil {
		t.Errorf("Renew: %v", err)
	}
	leave(t, b, holder)
	leave(t, b, granted(t, b, got.ticket))
	empty(t, b)
	sane(t, db)
}
