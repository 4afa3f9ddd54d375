package mariadb_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// enough is how many Enters sweep some hundred lines for certain.
const enough = 400

func TestIdleLinesAreForgottenAfterADay(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	b := backend(t, db)
	for i := range 200 {
		leave(t, b, hold(t, b, claim(fmt.Sprint("idle", i))))
	}
	marked := hold(t, b, claim("marked"))
	if err := b.Leave(soon(t), marked, driver.Exit{Mark: "done"}); err != nil {
		t.Fatal(err)
	}
	inUse := hold(t, b, claim("in use"))
	hold(t, b, claim("dead"))
	hold(t, b, claim("dead too"))
	apart(t, b, "dead too")
	do(t, db, "UPDATE fencelock_line SET last = last - 25 * 3600 * 1000000 WHERE lock_key <> 'idle7'")
	do(t, db, "UPDATE fencelock_line SET expires = 1 WHERE lock_key = 'dead'")
	do(t, db, "UPDATE fencelock_claim SET expires = 1 WHERE lock_key = 'dead too'")
	for range enough {
		leave(t, b, hold(t, b, claim("busy")))
	}
	var left string
	if err := db.QueryRow("SELECT GROUP_CONCAT(CAST(lock_key AS CHAR) ORDER BY lock_key) FROM fencelock_line").Scan(&left); err != nil {
		t.Fatal(err)
	}
	// idle7 was in use less than a day ago.
	if want := "busy,idle7,in use,marked"; left != want {
		t.Errorf("the lines %s are left; want %s", left, want)
	}
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM (SELECT id FROM fencelock_claim UNION ALL SELECT id FROM fencelock_line WHERE id IS NOT NULL) all_of_them").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d claims are left, %v; want that of the one lock in use: the other program is dead", n, err)
	}
	if l, err := b.Line(soon(t), "marked"); err != nil || l.Mark != "done" {
		t.Errorf("the mark is %q, %v; want it kept", l.Mark, err)
	}
	leave(t, b, inUse)
	empty(t, b)
}

func TestRestsAreForgotten(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	b := backend(t, db)
	for i := range 50 {
		b.Leave(soon(t), driver.Ticket{Claim: ttl(claim(fmt.Sprint(i)), 100*time.Millisecond)}, driver.Exit{})
	}
	until(t, "no id rests", func() bool {
		for range 64 {
			leave(t, b, hold(t, b, claim("busy")))
		}
		var n int
		if err := db.QueryRow("SELECT COUNT(*) FROM fencelock_rest").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

// TestCloseLeavesNothingBehind closes a Backend in the middle of everything, and then its
// pool: no goroutine, connection or prepared statement stays.
func TestCloseLeavesNothingBehind(t *testing.T) {
	name := newDatabase(t)
	admin := openDSN(t, dsnOf(server(t), "", ""))
	connections := func() (n int) {
		t.Helper()
		if err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = ?", name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	connections()
	before := goleak.IgnoreCurrent()
	db, err := sql.Open("mysql", dsnOf(server(t), name, ""))
	if err != nil {
		t.Fatal(err)
	}
	b := sqllock.New(db, sqllock.MySQL, &sqllock.Options{CreateTables: true})
	holder := hold(t, b, claim("k"))
	w := wait(t, b, claim("k"))
	stop := b.Alarm(func(string, driver.ErrGone) {})
	done := make(chan error)
	go func() {
		_, err := b.Await(context.Background(), w)
		done <- err
	}()
	polls := func() (n int) {
		t.Helper()
		var name string
		if err := admin.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_call_procedure'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := polls()
	until(t, "the watch asks", func() bool { return polls() > first+20 })
	b.Close()
	if err := <-done; err != driver.ErrClosed {
		t.Errorf("Await during Close answered %v; want ErrClosed", err)
	}
	stop()
	if err := db.Ping(); err != nil {
		t.Errorf("the program's database is not open any more: %v", err)
	}
	var prepared string
	var n int
	if err := admin.QueryRow("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'").Scan(&prepared, &n); err != nil || n != 0 {
		t.Errorf("%d statements are prepared, %v; want none", n, err)
	}
	db.Close()
	goleak.VerifyNone(t, before)
	until(t, "no connection is left", func() bool { return connections() == 0 })
	again := backend(t, openDSN(t, dsnOf(server(t), name, "")))
	leave(t, again, holder)
	leave(t, again, granted(t, again, w))
	empty(t, again)
}
