package mariadb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestClockInTheNightThatHasAnHourTwice has a server in a zone with summer time, whose
// SYSDATE may be set, which tells what the schema makes of any moment: around the two
// changes of the year the clock may not jump, or leases end an hour early.
func TestClockInTheNightThatHasAnHourTwice(t *testing.T) {
	t.Setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
	s := testserver.MariaDB(t, testserver.Config("sysdate-is-now"))
	dsn := dsnOf(s, "locks", "")
	t.Run("Laws", func(t *testing.T) {
		open := func(t *testing.T) driver.Backend { return backend(t, openDSN(t, dsn)) }
		drivertest.Model(t, open, 2)
		essentials(t, open(t), open(t))
	})
	conn := program(t, openDSN(t, dsn))
	// A check of the check: here an hour comes twice.
	var first, again string
	autumn := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC)
	spring := time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)
	for at, local := range map[time.Time]*string{autumn: &first, autumn.Add(time.Hour): &again} {
		do(t, conn, fmt.Sprintf("SET timestamp = %d", at.Unix()))
		if err := conn.QueryRowContext(soon(t), "SELECT SYSDATE()").Scan(local); err != nil {
			t.Fatal(err)
		}
	}
	if first != again {
		t.Fatalf("half past midnight UTC and an hour later are %s and %s; want one local time", first, again)
	}
	for _, change := range []time.Time{autumn, spring} {
		for minute := -90; minute < 150; minute += 10 {
			at := change.Add(time.Duration(minute)*time.Minute + 123456*time.Microsecond)
			do(t, conn, fmt.Sprintf("SET timestamp = %d.%06d", at.Unix(), at.Nanosecond()/1000))
			do(t, conn, "CALL fencelock_v1_clock(@now)")
			var now int64
			if err := conn.QueryRowContext(soon(t), "SELECT @now").Scan(&now); err != nil {
				t.Fatal(err)
			}
			if now != at.UnixMicro() {
				t.Errorf("at %v the clock is %v", at, time.UnixMicro(now).UTC())
			}
			// The first claim on a key takes the long way, the second the quick one.
			for _, id := range []string{"long", "quick"} {
				key := fmt.Sprint("at ", at.UnixMicro())
				do(t, conn, fmt.Sprintf("CALL fencelock_v1_enter('%s', '%s', 1, 1048576, 1048576, 1000000, 0, 1, '', '')", key, id))
				var token int64
				if err := conn.QueryRowContext(soon(t), "SELECT since, last FROM fencelock_line WHERE id IS NOT NULL AND lock_key = ?", key).Scan(&now, &token); err != nil {
					t.Fatal(err)
				}
				if now != at.UnixMicro() {
					t.Errorf("at %v a claim enters the %s way at %v", at, id, time.UnixMicro(now).UTC())
				}
				var left string // a single column: by its clock the claim had not expired
				if err := conn.QueryRowContext(soon(t), fmt.Sprintf("CALL fencelock_v1_leave('%s', '%s', %d, 1000000, '', 0, 1)", key, id, token)).Scan(&left); err != nil {
					t.Errorf("at %v a claim does not leave the quick way: %v", at, err)
				}
			}
		}
	}
}

// TestServersClockDecides moves a client's wall clock out of the game: rows are moved in
// time instead, which to everybody is as if the server's clock were stepped.
func TestServersClockDecides(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	b := backend(t, db)
	holder := hold(t, b, claim("k"))
	do(t, db, "UPDATE fencelock_line SET expires = expires - 61 * 1000000")
	if err := b.Renew(soon(t), []driver.Ticket{holder})[0]; !driver.Gone(err) {
		t.Errorf("Renew of what has ended by the server's clock answered %v; want ErrGone", err)
	}
	// A counter far ahead of the clock goes on from where it is, the long way and the quick one.
	next := hold(t, b, claim("k"))
	leave(t, b, next)
	for _, front := range []string{"", ", front = last + 1"} {
		do(t, db, "UPDATE fencelock_line SET last = last + 3600 * 1000000"+front)
		later := hold(t, b, claim("k"))
		if later.Token != next.Token+3600*1000000+1 {
			t.Errorf("after a clock that was set back the token is %d; want one above the counter, %d", later.Token, next.Token+3600*1000000+1)
		}
		leave(t, b, later)
		next = later
	}
	empty(t, b)
}

// TestClockIsReadUnderTheLockOfTheLine: an Enter that waited for others of its line begins
// when it has it, not when it was sent. So the order of tokens is that of their clocks.
func TestClockIsReadUnderTheLockOfTheLine(t *testing.T) {
	t.Parallel()
	name := newDatabase(t)
	db := openDSN(t, dsnOf(server(t), name, ""))
	b := backend(t, db)
	leave(t, b, hold(t, b, claim("k")))
	tx, err := db.BeginTx(soon(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	do(t, tx, "UPDATE fencelock_line SET mark = NULL WHERE lock_key = 'k'")
	entered := make(chan driver.Ticket)
	go func() {
		k, err := b.Enter(soon(t), claim("k"))
		if err != nil {
			t.Error(err)
		}
		entered <- k
	}()
	blocked(t, openDSN(t, dsnOf(server(t), "", "")), name)
	var now, since int64
	if err := tx.QueryRow("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)").Scan(&now); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	k := <-entered
	if err := db.QueryRow("SELECT since FROM fencelock_line WHERE lock_key = 'k'").Scan(&since); err != nil {
		t.Fatal(err)
	}
	if since < now || k.Token < now {
		t.Errorf("a claim that entered after %d is held since %d, with token %d", now, since, k.Token)
	}
	leave(t, b, k)
	empty(t, b)
}
