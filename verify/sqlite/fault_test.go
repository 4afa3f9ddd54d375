package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// refusal must be a PermanentError from every call, and mention words.
func refusal(t *testing.T, b *sqllock.Backend, words ...string) {
	t.Helper()
	ctx := soon(t)
	ticket := driver.Ticket{Claim: claim("k"), Token: 1}
	calls := map[string]error{
		"Enter": second(b.Enter(ctx, claim("k"))),
		"Await": second(b.Await(ctx, ticket)),
		"Renew": b.Renew(ctx, []driver.Ticket{ticket})[0],
		"Leave": b.Leave(ctx, ticket, driver.Exit{}),
		"Break": b.Break(ctx, "k", 1, ""),
		"Line":  second(b.Line(ctx, "k")),
	}
	for _, err := range b.Lines(ctx, "") {
		calls["Lines"] = err
	}
	for name, err := range calls {
		var p *driver.PermanentError
		if !errors.As(err, &p) {
			t.Errorf("%s answered %v; want a PermanentError", name, err)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s answered %q; want it to say %q", name, err, word)
			}
		}
	}
	if len(calls) != 7 {
		t.Error("Lines yielded no error")
	}
}

func TestWhatCannotWorkSaysSo(t *testing.T) {
	t.Parallel()
	create := &sqllock.Options{CreateTables: true}
	t.Run("MissingTables", func(t *testing.T) {
		b := sqllock.New(openFile(t, newFile(t)), sqllock.SQLite, nil)
		defer b.Close()
		refusal(t, b, "missing", "CreateTables", "fencelock schema sqlite")
	})
	t.Run("TablesDroppedLater", func(t *testing.T) {
		db := openFile(t, newFile(t))
		b := backend(t, db)
		hold(t, b, claim("k"))
		for _, table := range []string{"claim", "line", "tombstone", "meta"} {
			if _, err := db.Exec("DROP TABLE fencelock_" + table); err != nil {
				t.Fatal(err)
			}
		}
		refusal(t, b, "missing")
	})
	t.Run("Prefix", func(t *testing.T) {
		for _, prefix := range []string{"a b", "x;", `x"`, "1x", "sqlite_x", "ä", strings.Repeat("x", 33), "x'--"} {
			b := sqllock.New(openFile(t, newFile(t)), sqllock.SQLite, &sqllock.Options{Prefix: prefix, CreateTables: true})
			refusal(t, b, "prefix")
			if _, err := sqllock.Schema(sqllock.SQLite, &sqllock.Options{Prefix: prefix}); err == nil {
				t.Errorf("Schema took the prefix %q", prefix)
			}
			b.Close()
		}
	})
	t.Run("Dialect", func(t *testing.T) {
		refusal(t, sqllock.New(openFile(t, newFile(t)), 0, create), "dialect")
		if _, err := sqllock.Schema(77, nil); err == nil {
			t.Error("Schema took a dialect that does not exist")
		}
	})
	t.Run("NoDatabase", func(t *testing.T) {
		refusal(t, sqllock.New(nil, sqllock.SQLite, create), "database")
	})
	t.Run("OtherFormat", func(t *testing.T) {
		db := openFile(t, newFile(t))
		leave(t, backend(t, db), hold(t, backend(t, db), claim("k")))
		if _, err := db.Exec("UPDATE fencelock_meta SET value = 7 WHERE name = 'format'"); err != nil {
			t.Fatal(err)
		}
		refusal(t, backend(t, db), "format 7", "format 1")
		if _, err := db.Exec("DELETE FROM fencelock_meta"); err != nil {
			t.Fatal(err)
		}
		refusal(t, backend(t, db), "format")
	})
	t.Run("NotADatabase", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "letter")
		if err := os.WriteFile(path, []byte(strings.Repeat("this is a letter to my mother\n", 100)), 0o600); err != nil {
			t.Fatal(err)
		}
		refusal(t, backend(t, openFile(t, path)), "not a database")
	})
	t.Run("NoFolder", func(t *testing.T) {
		refusal(t, backend(t, openFile(t, filepath.Join(t.TempDir(), "no", "locks.db"))), "cannot be opened", "folder")
	})
	t.Run("ReadOnly", func(t *testing.T) {
		path := newFile(t)
		leave(t, backend(t, openFile(t, path)), hold(t, backend(t, openFile(t, path)), claim("k")))
		b := backend(t, openDSN(t, "file:"+path+"?mode=ro"))
		_, err := b.Enter(soon(t), claim("k"))
		var p *driver.PermanentError
		if !errors.As(err, &p) || !strings.Contains(err.Error(), "may not be written") {
			t.Errorf("Enter on a read-only database answered %v; want a PermanentError that says so", err)
		}
	})
	t.Run("ClosedDatabase", func(t *testing.T) {
		db := openFile(t, newFile(t))
		b := backend(t, db)
		leave(t, b, hold(t, b, claim("k")))
		db.Close()
		refusal(t, b, "closed")
	})
}

func TestMissingTablesAreNotRemembered(t *testing.T) {
	db := openFile(t, newFile(t))
	b := sqllock.New(db, sqllock.SQLite, &sqllock.Options{Prefix: "app_"})
	defer b.Close()
	refusal(t, b, "missing")
	ddl, err := sqllock.Schema(sqllock.SQLite, &sqllock.Options{Prefix: "app_"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := db.Exec(ddl); err != nil {
			t.Fatalf("the schema cannot be run: %v", err)
		}
	}
	leave(t, b, hold(t, b, claim("k")))
	// Another set of tables in the same database is another set of locks.
	other := backend(t, db)
	mine := hold(t, b, claim("k"))
	leave(t, other, hold(t, other, claim("k")))
	leave(t, b, mine)
	empty(t, b)
}

// TestFullDiskIsAnErrorAndHeals lets the database grow no further.
func TestFullDiskIsAnErrorAndHeals(t *testing.T) {
	t.Parallel()
	db := openFile(t, newFile(t))
	db.SetMaxOpenConns(1)
	b := backend(t, db)
	first := hold(t, b, claim("first"))
	w := wait(t, b, claim("first"))
	var pages int
	if err := db.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow(fmt.Sprintf("PRAGMA max_page_count = %d", pages)).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	var full error
	for i := 0; full == nil && i < 10_000; i++ {
		c := claim(fmt.Sprint("filler", i))
		c.Note = strings.Repeat("x", driver.MaxNote)
		_, full = b.Enter(soon(t), c)
	}
	var p *driver.PermanentError
	if full == nil || errors.As(full, &p) || driver.Gone(full) || !strings.Contains(full.Error(), "room") {
		t.Fatalf("Enter on a full disk answered %v; want an error that is neither permanent nor an answer, and says so", full)
	}
	// What needs no more room goes on.
	if err := b.Renew(soon(t), []driver.Ticket{first})[0]; err != nil {
		t.Errorf("Renew on a full disk: %v", err)
	}
	leave(t, b, first)
	leave(t, b, granted(t, b, w))
	if err := db.QueryRow("PRAGMA max_page_count = 1000000").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	leave(t, b, hold(t, b, claim("later")))
	sane(t, db)
	leaveAll(t, b, "")
}

// TestDamagedRowsAreAnErrorNotAPanic puts rows into the tables that no step writes.
func TestDamagedRowsAreAnErrorNotAPanic(t *testing.T) {
	t.Parallel()
	for _, damage := range []string{
		"UPDATE fencelock_claim SET weight = -5",
		"UPDATE fencelock_claim SET weight = 0",
		"UPDATE fencelock_claim SET weight = 1 << 40",
		"UPDATE fencelock_claim SET capacity = 1 << 62",
		"UPDATE fencelock_claim SET capacity = 0",
		"UPDATE fencelock_claim SET token = 9223372036854775807",
		"UPDATE fencelock_claim SET token = -1",
		"UPDATE fencelock_claim SET span = 9223372036854775807",
		"UPDATE fencelock_line SET last = 9223372036854775807",
		"UPDATE fencelock_line SET last = 9223372036854775000",
	} {
		t.Run(damage, func(t *testing.T) {
			db := openFile(t, newFile(t))
			db.SetMaxOpenConns(1)
			b := backend(t, db)
			holder := hold(t, b, claim("k"))
			for _, sql := range []string{"PRAGMA ignore_check_constraints = ON", damage} {
				if _, err := db.Exec(sql); err != nil {
					t.Fatal(err)
				}
			}
			ctx := soon(t)
			// Whatever it answers, it may not crash, and may not let a second one in.
			ticket, err := b.Enter(ctx, claim("k"))
			if err == nil && ticket.Granted {
				t.Errorf("a second claim was granted beside a damaged one")
			}
			var p *driver.PermanentError
			if err != nil && !errors.As(err, &p) {
				t.Errorf("Enter answered %v; want a PermanentError", err)
			}
			b.Renew(ctx, []driver.Ticket{holder})
			brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			b.Await(brief, holder)
			b.Line(ctx, "k")
			for range b.Lines(ctx, "") {
			}
			b.Break(ctx, "k", holder.Token, "")
			b.Leave(ctx, holder, driver.Exit{Mark: "m"})
			b.Leave(ctx, driver.Ticket{Claim: holder.Claim}, driver.Exit{})
			// What the error says to do helps.
			for _, table := range []string{"claim", "line", "tombstone"} {
				if _, err := db.Exec("DELETE FROM fencelock_" + table); err != nil {
					t.Fatal(err)
				}
			}
			leave(t, b, hold(t, b, claim("k")))
		})
	}
}

// TestRowsDeletedByHandWakeTheNext is what an operator with an SQL shell does.
func TestRowsDeletedByHandWakeTheNext(t *testing.T) {
	t.Parallel()
	db := openFile(t, newFile(t))
	b := backend(t, db)
	holder := hold(t, b, claim("k"))
	w := wait(t, b, claim("k"))
	if _, err := db.Exec("DELETE FROM fencelock_claim WHERE token = ?", holder.Token); err != nil {
		t.Fatal(err)
	}
	w = granted(t, b, w)
	if err := b.Leave(soon(t), holder, driver.Exit{}); !driver.Gone(err) {
		t.Errorf("Leave of the deleted claim answered %v; want ErrGone", err)
	}
	leave(t, b, w)
	empty(t, b)
}
