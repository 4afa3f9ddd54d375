package sqlite_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// reboot makes all rows look as if they were written before the host was started
// again: on a clock that nobody can read any more, and since a while ago.
func reboot(t *testing.T, db *sql.DB, ago time.Duration) {
	t.Helper()
	for _, table := range []string{"claim", "tombstone"} {
		_, err := db.Exec("UPDATE fencelock_"+table+" SET clock = 4711, expires = expires + 1000000000000, until = until - ?", ago.Microseconds())
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLeasesAreOverAfterARestartOfTheHost(t *testing.T) {
	t.Parallel()
	db := openFile(t, newFile(t))
	b := backend(t, db)
	old := hold(t, b, claim("k"))
	waited := wait(t, b, claim("k"))
	reboot(t, db, 2*time.Minute)
	if n := lines(t, b); n != 0 {
		t.Errorf("%d lines are shown whose claims ended before the restart", n)
	}
	if err := b.Renew(soon(t), []driver.Ticket{waited})[0]; !driver.Gone(err) {
		t.Errorf("Renew of a claim from before the restart answered %v; want ErrGone", err)
	}
	now := hold(t, b, noWait(claim("k")))
	if now.Token <= waited.Token {
		t.Errorf("the token after the restart is %d; want one above %d", now.Token, waited.Token)
	}
	if err := b.Leave(soon(t), old, driver.Exit{}); !driver.Gone(err) {
		t.Errorf("Leave of a claim from before the restart answered %v; want ErrGone", err)
	}
	leave(t, b, now)
	empty(t, b)
}

// TestRestartKeepsWhatIsNotOver carries the rest of a lease over: the place that a
// finished holder keeps for an hour stays taken, and a process on another clock of
// this host, as in a container with a time namespace, keeps its lock.
func TestRestartKeepsWhatIsNotOver(t *testing.T) {
	t.Parallel()
	db := openFile(t, newFile(t))
	b := backend(t, db)
	first := hold(t, b, claim("held"))
	done := hold(t, b, claim("lingers"))
	if err := b.Leave(soon(t), done, driver.Exit{Linger: time.Hour}); err != nil {
		t.Fatal(err)
	}
	reboot(t, db, 20*time.Second)
	for _, key := range []string{"held", "lingers"} {
		if _, err := b.Enter(soon(t), noWait(claim(key))); err == nil {
			t.Errorf("%q was free after the restart; want its lease to go on", key)
		}
		l, err := b.Line(soon(t), key)
		if err != nil || len(l.Claims) != 1 {
			t.Fatalf("the line of %q is %+v, %v", key, l, err)
		}
		if key == "held" && (l.Claims[0].Left > 40*time.Second || l.Claims[0].Left < 20*time.Second) {
			t.Errorf("%v are left of a lease that had 40s left by the wall clock", l.Claims[0].Left)
		}
	}
	reboot(t, db, 0)
	if err := b.Renew(soon(t), []driver.Ticket{first})[0]; err != nil {
		t.Errorf("Renew of a live claim on another clock: %v", err)
	}
	leave(t, b, first)
	leaveAll(t, b, "")
}

// TestClockOfTheHostSetBackHoldsNobodyForLong is a host that starts with its clock
// in the past: what is left of a lease is never more than the whole of it.
func TestClockOfTheHostSetBackHoldsNobodyForLong(t *testing.T) {
	t.Parallel()
	db := openFile(t, newFile(t))
	b := backend(t, db)
	const lease = 500 * time.Millisecond
	old := hold(t, b, ttl(claim("k"), lease))
	reboot(t, db, -24*time.Hour)
	if _, err := db.Exec("UPDATE fencelock_line SET last = last + 86400000000"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w := granted(t, b, enter(t, b, claim("k")))
	if took := time.Since(began); took > lease+time.Second {
		t.Errorf("a lease of %v from before the restart lasted %v more", lease, took)
	}
	if w.Token <= old.Token+86400000000 {
		t.Errorf("the token is %d; want one above the counter, %d, though the clock is behind it", w.Token, old.Token+86400000000)
	}
	leave(t, b, w)
	empty(t, b)
}

// TestWaiterOutlivesTheClockItEnteredOn is a line in which everybody is on another
// clock: they are all carried over, in their order.
func TestWaiterOutlivesTheClockItEnteredOn(t *testing.T) {
	t.Parallel()
	db := openFile(t, newFile(t))
	b := backend(t, db)
	first := hold(t, b, claim("k"))
	second, third := wait(t, b, claim("k")), wait(t, b, claim("k"))
	reboot(t, db, time.Second)
	leave(t, b, first)
	second = granted(t, b, second)
	leave(t, b, second)
	leave(t, b, granted(t, b, third))
	empty(t, b)
}

func lines(t testing.TB, b driver.Backend) (n int) {
	t.Helper()
	for _, err := range b.Lines(soon(t), "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}
