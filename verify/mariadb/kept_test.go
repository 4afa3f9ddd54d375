package mariadb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// A claim that is alone is kept by the row of its line, until somebody else opens a step
// there. These are the moments at which the one becomes the other.

// keeps reports whether the row of key's line keeps a claim.
func keeps(t testing.TB, db *sql.DB, key string) (kept bool) {
	t.Helper()
	if err := db.QueryRowContext(soon(t), "SELECT id IS NOT NULL FROM fencelock_line WHERE lock_key = ?", key).Scan(&kept); err != nil {
		t.Fatal(err)
	}
	return kept
}

// open opens a step on the line of k and stays in the middle of it: the line is locked, and
// what it kept has its own row, which nobody sees before the COMMIT.
func open(t testing.TB, conn *sql.Conn) {
	t.Helper()
	do(t, conn, "CALL fencelock_v1_open('k', 0, @now, @last, @front, @mark, @mark_id)")
}

// seen is what people see of a line, but for the time that is left.
func seen(t testing.TB, b *sqllock.Backend, key string) driver.Line {
	t.Helper()
	l, err := b.Line(soon(t), key)
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.Claims {
		if left := l.Claims[i].Left; left < 40*time.Second || left > time.Minute {
			t.Errorf("%v are left of a lease of a minute", left)
		}
		l.Claims[i].Left = 0
	}
	return l
}

// TestALoneClaimIsTheSameInBothPlaces compares what is seen of a claim while its line keeps
// it and afterwards, and what its holder is told.
func TestALoneClaimIsTheSameInBothPlaces(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	b := backend(t, db)
	other := backend(t, openDSN(t, dsnOf(server(t), databaseOf(t, db), "")))
	for _, mark := range []driver.Mark{"", "done"} {
		first := hold(t, b, claim("k"))
		if err := b.Leave(soon(t), first, driver.Exit{Mark: mark}); err != nil {
			t.Fatal(err)
		}
		// Whose mark it is knows that its Leave was done.
		if err := b.Leave(soon(t), first, driver.Exit{Mark: mark}); driver.Gone(err) != (mark == "") {
			t.Errorf("Leave with the mark %q was answered %v when it was repeated", mark, err)
		}
		for _, c := range []driver.Claim{claim("k"), reader("k"), {Key: "k", ID: "sem", Capacity: 5, Weight: 3, TTL: time.Minute, Span: 64}} {
			ticket := hold(t, b, c)
			if !keeps(t, db, "k") {
				t.Fatalf("a claim on a line with the mark %q is not kept by its row", mark)
			}
			if ticket.Mark != mark {
				t.Errorf("the mark is %q; want %q", ticket.Mark, mark)
			}
			before := seen(t, other, "k")
			if len(before.Claims) != 1 || before.Claims[0].Token != ticket.Token || before.Claims[0].Owner != c.Owner ||
				before.Claims[0].Note != c.Note || before.Claims[0].Span != c.Span || before.Mark != mark {
				t.Errorf("%+v is seen of %+v", before, ticket)
			}
			if awaited, err := other.Await(soon(t), ticket); err != nil || !awaited.Granted || awaited.Mark != mark {
				t.Errorf("Await of a claim that its line keeps answered %+v, %v", awaited, err)
			}
			again := hold(t, other, c) // the answer was lost
			if keeps(t, db, "k") {
				t.Error("a repeated Enter leaves the claim where it is")
			}
			if again.Token != ticket.Token || again.Mark != mark || again.Left < 40*time.Second {
				t.Errorf("Enter was answered %+v, and its repeat %+v", ticket, again)
			}
			if after := seen(t, other, "k"); !reflect.DeepEqual(before, after) {
				t.Errorf("the line was %+v before its claim had a row, and is %+v", before, after)
			}
			sane(t, db)
			leave(t, b, ticket)
			sane(t, db)
		}
	}
	// A place that lingers is one of a claim with a row.
	lingering := hold(t, b, claim("k"))
	if err := b.Leave(soon(t), lingering, driver.Exit{Mark: "ran", Linger: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	next := granted(t, other, enter(t, other, claim("k")))
	if next.Mark != "ran" {
		t.Errorf("the mark is %q; want ran", next.Mark)
	}
	leave(t, other, next)
	empty(t, b)
	sane(t, db)
}

func databaseOf(t testing.TB, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRowContext(soon(t), "SELECT DATABASE()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestLinesAreListedInWhicheverPlaceTheirClaimsAre lists lines with claims in both places,
// among lines that are free.
func TestLinesAreListedInWhicheverPlaceTheirClaimsAre(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	b := backend(t, db)
	var want []string
	var all []driver.Ticket
	for i := range 12 {
		key := fmt.Sprintf("k%02d", i)
		ticket := hold(t, b, claim(key))
		switch i % 4 {
		case 0:
			leave(t, b, ticket)
			continue
		case 1, 3:
			apart(t, b, key)
		}
		want = append(want, key)
		all = append(all, ticket)
	}
	for _, prefix := range []string{"", "k", "k0", "k1", "k05", "k06", "l"} {
		var got, those []string
		for _, key := range want {
			if strings.HasPrefix(key, prefix) {
				those = append(those, key)
			}
		}
		for l, err := range b.Lines(soon(t), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, l.Key)
		}
		if !slices.Equal(got, those) {
			t.Errorf("of %q the lines %q are listed; want %q", prefix, got, those)
		}
	}
	for _, ticket := range all {
		leave(t, b, ticket)
	}
	empty(t, b)
}

// TestStepsThatWaitForTheLineFindTheClaimInItsOwnRow has a step of the holder wait for the
// line while somebody gives its claim a row.
func TestStepsThatWaitForTheLineFindTheClaimInItsOwnRow(t *testing.T) {
	for name, step := range map[string]func(*sql.DB, *sqllock.Backend, driver.Ticket) error{
		"Leave": func(_ *sql.DB, b *sqllock.Backend, ticket driver.Ticket) error {
			return b.Leave(soon(t), ticket, driver.Exit{})
		},
		// Not by Backend.Renew: it would ask again in another way for what it does not find.
		"Renew": func(db *sql.DB, _ *sqllock.Backend, ticket driver.Ticket) error {
			list := fmt.Sprintf("%016x%016x%04d%04d%s%s", ticket.Token, 120_000_000, len(ticket.Key), len(ticket.ID), ticket.Key, ticket.ID)
			var alive string
			err := db.QueryRowContext(soon(t), fmt.Sprintf("CALL fencelock_v1_renew(X'%x')", list)).Scan(&alive)
			if err == nil && alive != "1" {
				err = fmt.Errorf("it is not found: %q", alive)
			}
			return err
		},
		"Enter": func(_ *sql.DB, b *sqllock.Backend, ticket driver.Ticket) error {
			again, err := b.Enter(soon(t), ticket.Claim)
			if err == nil && again.Token != ticket.Token {
				err = fmt.Errorf("it has the token %d; want %d", again.Token, ticket.Token)
			}
			return err
		},
		"Break": func(_ *sql.DB, b *sqllock.Backend, ticket driver.Ticket) error {
			return b.Break(soon(t), "k", ticket.Token, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := newDatabase(t)
			db := openDSN(t, dsnOf(server(t), database, ""))
			b := backend(t, db)
			ticket := hold(t, b, claim("k"))
			if !keeps(t, db, "k") {
				t.Fatal("the line does not keep the claim")
			}
			p := program(t, openDSN(t, dsnOf(server(t), database, "")))
			open(t, p)
			done := make(chan error, 1)
			go func() { done <- step(db, b, ticket) }()
			blocked(t, openDSN(t, dsnOf(server(t), "", "")), database)
			do(t, p, "COMMIT")
			if err := <-done; err != nil {
				t.Errorf("%s of a claim that got a row meanwhile: %v", name, err)
			}
			sane(t, db)
			if err := b.Leave(soon(t), ticket, driver.Exit{}); driver.Gone(err) != (name == "Leave" || name == "Break") {
				t.Errorf("Leave in the end answered %v", err)
			}
			empty(t, b)
		})
	}
}

// TestFreeLockIsNotForAnIdThatWasLaidToRestMeanwhile has an Enter wait for the line while
// its id is laid to rest there, as a Leave of who gave it up does.
func TestFreeLockIsNotForAnIdThatWasLaidToRestMeanwhile(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	db := openDSN(t, dsnOf(server(t), database, ""))
	b := backend(t, db)
	leave(t, b, hold(t, b, claim("k")))
	late := claim("k")
	p := program(t, openDSN(t, dsnOf(server(t), database, "")))
	open(t, p)
	done := make(chan error, 1)
	go func() { done <- second(b.Enter(soon(t), late)) }()
	blocked(t, openDSN(t, dsnOf(server(t), "", "")), database)
	do(t, p, fmt.Sprintf("CALL fencelock_v1_lay('k', '%s', @now, @now + 60000000, 0, 'it has left', 1)", late.ID))
	do(t, p, "COMMIT")
	if err := <-done; !driver.Gone(err) {
		t.Errorf("Enter of an id that was laid to rest while it waited answered %v; want ErrGone", err)
	}
	// Others are not kept out, and those that were are not let in by them.
	leave(t, b, hold(t, b, claim("k")))
	sane(t, db)
	if _, err := b.Enter(soon(t), late); !driver.Gone(err) {
		t.Errorf("Enter of an id at rest behind others answered %v; want ErrGone", err)
	}
	// Nor by a line that was forgotten meanwhile.
	do(t, db, "DELETE FROM fencelock_line WHERE lock_key = 'k'")
	if _, err := b.Enter(soon(t), late); !driver.Gone(err) {
		t.Errorf("Enter of an id at rest into a new line answered %v; want ErrGone", err)
	}
	// When the rest is over, the lock is as free as before.
	do(t, db, "UPDATE fencelock_rest SET expires = 1")
	leave(t, b, hold(t, b, claim("k")))
	var rests bool
	if err := db.QueryRow("SELECT rests FROM fencelock_line WHERE lock_key = 'k'").Scan(&rests); err != nil || rests {
		t.Errorf("the line says that ids are at rest: %v, %v", rests, err)
	}
	leave(t, b, hold(t, b, late))
	empty(t, b)
}

// TestAKeptClaimEndsWithItsLease lets a lease end while the line keeps the claim, and while
// a step of the holder waits for the line: it was sent in time, and comes too late.
func TestAKeptClaimEndsWithItsLease(t *testing.T) {
	t.Run("Before", func(t *testing.T) {
		t.Parallel()
		db := openDSN(t, newDSN(t, ""))
		b := backend(t, db)
		for name, step := range map[string]func(driver.Ticket) error{
			"Renew": func(ticket driver.Ticket) error { return b.Renew(soon(t), []driver.Ticket{ticket})[0] },
			"Leave": func(ticket driver.Ticket) error { return b.Leave(soon(t), ticket, driver.Exit{}) },
			"Break": func(ticket driver.Ticket) error { return b.Break(soon(t), "k", ticket.Token, "") },
			"Enter": func(driver.Ticket) error {
				next, err := b.Enter(soon(t), noWait(claim("k")))
				if err == nil {
					leave(t, b, next)
					err = driver.ErrGone{}
				}
				return err
			},
		} {
			dead := hold(t, b, claim("k"))
			if !keeps(t, db, "k") {
				t.Fatal("the line does not keep the claim")
			}
			do(t, db, "UPDATE fencelock_line SET expires = 1")
			for l, err := range b.Lines(soon(t), "") {
				t.Errorf("a dead claim is listed: %+v, %v", l, err)
			}
			if err := step(dead); !driver.Gone(err) {
				t.Errorf("%s after the lease answered %v; want ErrGone", name, err)
			}
			next := hold(t, b, claim("k"))
			if next.Token <= dead.Token {
				t.Errorf("token %d after %d", next.Token, dead.Token)
			}
			leave(t, b, next)
			sane(t, db)
		}
		empty(t, b)
	})
	for name, step := range map[string]func(*sqllock.Backend, driver.Ticket) error{
		"RenewWaits": func(b *sqllock.Backend, ticket driver.Ticket) error {
			return b.Renew(soon(t), []driver.Ticket{ticket})[0]
		},
		"LeaveWaits": func(b *sqllock.Backend, ticket driver.Ticket) error {
			return b.Leave(soon(t), ticket, driver.Exit{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := newDatabase(t)
			db := openDSN(t, dsnOf(server(t), database, ""))
			b := backend(t, db)
			ticket := hold(t, b, claim("k"))
			p := program(t, openDSN(t, dsnOf(server(t), database, "")))
			do(t, p, "BEGIN")
			do(t, p, "SELECT * FROM fencelock_line FOR UPDATE")
			done := make(chan error, 1)
			go func() { done <- step(b, ticket) }()
			blocked(t, openDSN(t, dsnOf(server(t), "", "")), database)
			do(t, p, "UPDATE fencelock_line SET expires = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)")
			do(t, p, "COMMIT")
			if err := <-done; !driver.Gone(err) {
				t.Errorf("it waited until the lease had ended, and was answered %v; want ErrGone", err)
			}
			leave(t, b, hold(t, b, claim("k")))
			empty(t, b)
		})
	}
}

// TestBreakOfAKeptClaim breaks by a token in the middle of what the claim has reserved.
func TestBreakOfAKeptClaim(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	b := backend(t, db)
	c := claim("k")
	c.Span = 64
	ticket := hold(t, b, c)
	for _, none := range []int64{ticket.Token - 1, ticket.Token + 64} {
		if err := b.Break(soon(t), "k", none, ""); !driver.Gone(err) {
			t.Errorf("Break of a token that nobody has answered %v; want ErrGone", err)
		}
	}
	leave(t, b, ticket)
	ticket = hold(t, b, c)
	if err := b.Break(soon(t), "k", ticket.Token+63, "enough"); err != nil {
		t.Errorf("Break: %v", err)
	}
	var gone driver.ErrGone
	if _, err := b.Enter(soon(t), c); !errors.As(err, &gone) || !gone.Broken || gone.Reason != "enough" {
		t.Errorf("Enter of a broken claim answered %v; want that", err)
	}
	if err := b.Renew(soon(t), []driver.Ticket{ticket})[0]; !errors.As(err, &gone) || !gone.Broken {
		t.Errorf("Renew of a broken claim answered %v; want that", err)
	}
	if err := b.Leave(soon(t), ticket, driver.Exit{}); !driver.Gone(err) {
		t.Errorf("Leave of a broken claim answered %v; want ErrGone", err)
	}
	leave(t, b, hold(t, b, claim("k")))
	empty(t, b)
	sane(t, db)
}

// TestAnIdOfNoBytesIsNobodys: a line that keeps no claim has no id, which is not an empty one.
func TestAnIdOfNoBytesIsNobodys(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{"", "clientFoundRows=true"} {
		b := backend(t, openDSN(t, newDSN(t, tail)))
		ticket := hold(t, b, claim("k"))
		leave(t, b, ticket)
		ticket.ID = ""
		if err := b.Renew(soon(t), []driver.Ticket{ticket})[0]; !driver.Gone(err) {
			t.Errorf("Renew without an id answered %v; want ErrGone", err)
		}
		empty(t, b)
	}
}

// TestRenewalsOfManyDoNotDeadlockWithSteps renews the claims of two programs on the same
// keys, given in opposite orders, while others open steps on all of them.
func TestRenewalsOfManyDoNotDeadlockWithSteps(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t) // its own, for its count of deadlocks
	dsn := dsnOf(s, "locks", "")
	db := openDSN(t, dsn)
	const keys = 20
	var bs []*sqllock.Backend
	for range 4 {
		bs = append(bs, backend(t, openDSN(t, dsn)))
	}
	var held []driver.Ticket
	for i := range keys {
		held = append(held, hold(t, bs[0], reader(fmt.Sprint("k", i))))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 2 {
		ts := slices.Clone(held)
		if i > 0 {
			slices.Reverse(ts)
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				for _, err := range bs[i].Renew(soon(t), ts) {
					if err != nil {
						t.Errorf("Renew: %v", err)
						return
					}
				}
			}
		})
	}
	for i := range 4 {
		wg.Go(func() {
			for n := i; ctx.Err() == nil; n += 7 {
				b, key := bs[n%len(bs)], fmt.Sprint("k", n%(keys+keys/2)) // on some of them nobody else is
				ticket, err := b.Enter(soon(t), reader(key))
				if err == nil {
					err = b.Renew(soon(t), []driver.Ticket{ticket})[0]
				}
				if err == nil {
					err = b.Leave(soon(t), ticket, driver.Exit{})
				}
				if err != nil {
					t.Errorf("a step on %s: %v", key, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := deadlocks(t, db); n > 0 {
		var kind, name, status string
		_ = db.QueryRow("SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status)
		_, status, _ = strings.Cut(status, "LATEST DETECTED DEADLOCK")
		status, _, _ = strings.Cut(status, "TRANSACTIONS\n------------")
		t.Errorf("%d deadlocks; want none; the last was\n%s", n, status)
	}
	for _, ticket := range held {
		leave(t, bs[0], ticket)
	}
	empty(t, bs[0])
	sane(t, db)
}
