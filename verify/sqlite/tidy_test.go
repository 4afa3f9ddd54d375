package sqlite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// enough is how many Enters sweep some hundred lines for certain.
const enough = 1200

func TestIdleLinesAreForgottenAfterADay(t *testing.T) {
	t.Parallel()
	db := openFile(t, newFile(t))
	b := backend(t, db)
	for i := range 300 {
		leave(t, b, hold(t, b, claim(fmt.Sprint("idle", i))))
	}
	marked := hold(t, b, claim("marked"))
	if err := b.Leave(soon(t), marked, driver.Exit{Mark: "done"}); err != nil {
		t.Fatal(err)
	}
	inUse := hold(t, b, claim("in use"))
	dead := hold(t, b, claim("dead"))
	for _, sql := range []string{
		"UPDATE fencelock_line SET last = last - 25 * 3600 * 1000000 WHERE CAST(key AS TEXT) <> 'idle7'",
		"UPDATE fencelock_claim SET expires = 1 WHERE CAST(key AS TEXT) = 'dead'",
	} {
		if _, err := db.Exec(sql); err != nil {
			t.Fatal(err)
		}
	}
	ctx := soon(t)
	for range enough {
		ticket, err := b.Enter(ctx, claim("busy"))
		if err == nil {
			err = b.Leave(ctx, ticket, driver.Exit{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rows, err := db.Query("SELECT CAST(key AS TEXT) FROM fencelock_line ORDER BY key")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var left []string
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			t.Fatal(err)
		}
		left = append(left, key)
	}
	// idle7 was in use less than a day ago.
	if got, want := fmt.Sprint(left), "[busy idle7 in use marked]"; got != want {
		t.Errorf("the lines %s are left; want %s", got, want)
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM fencelock_claim").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d claims are left, %v; want that of the one lock in use: the other process is dead", n, err)
	}
	_ = dead
	if l, err := b.Line(soon(t), "marked"); err != nil || l.Mark != "done" {
		t.Errorf("the mark is %q, %v; want it kept", l.Mark, err)
	}
	leave(t, b, inUse)
	empty(t, b)
}

func TestRestsAreForgotten(t *testing.T) {
	t.Parallel()
	db := openFile(t, newFile(t))
	b := backend(t, db)
	for range 50 {
		b.Leave(soon(t), driver.Ticket{Claim: ttl(claim("k"), 100*time.Millisecond)}, driver.Exit{})
	}
	end := time.Now().Add(15 * time.Second)
	for n := 50; n > 0; {
		if time.Now().After(end) {
			t.Fatalf("%d ids still rest", n)
		}
		b.Leave(soon(t), driver.Ticket{Claim: claim("k"), Token: 1}, driver.Exit{})
		if err := db.QueryRow("SELECT count(*) FROM fencelock_tombstone").Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloseLeavesNothingBehind closes a Backend in the middle of everything.
func TestCloseLeavesNothingBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	path := newFile(t)
	db := openFile(t, path)
	b := sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true})
	holder := hold(t, b, claim("k"))
	w := wait(t, b, claim("k"))
	stop := b.Alarm(func(string, driver.ErrGone) {})
	done := make(chan error)
	go func() {
		_, err := b.Await(context.Background(), w)
		done <- err
	}()
	until(t, "the watch runs", func() bool {
		return goleak.Find(before, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener")) != nil
	})
	b.Close()
	if err := <-done; err != driver.ErrClosed {
		t.Errorf("Await during Close answered %v; want ErrClosed", err)
	}
	stop()
	if err := db.Ping(); err != nil {
		t.Errorf("the program's database is not open any more: %v", err)
	}
	db.Close()
	goleak.VerifyNone(t, before)
	again := backend(t, openFile(t, path))
	leave(t, again, holder)
	leave(t, again, granted(t, again, w))
	empty(t, again)
}

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(15 * time.Second)
	for !cond() {
		if time.Now().After(end) {
			t.Fatalf("it did not happen: %s", what)
		}
		<-tick.C
	}
}
