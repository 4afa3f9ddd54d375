package doctor_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/storeurl"
)

// database opens the database of a URL for the test itself, with a function that runs
// statements there.
func database(t *testing.T, url string) (db *sql.DB, run func(statements ...string)) {
	t.Helper()
	u, err := storeurl.Parse(url, storeurl.Source{})
	must(t, err)
	db, err = u.SQL()
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db, func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			_, err := db.Exec(s)
			must(t, err)
		}
	}
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t, testserver.Config("fsync = on", "idle_in_transaction_session_timeout = '10min'"))
	finds(t, open(t, testserver.PgBouncer(t, s).URL()).Backend, time.Minute,
		"note postgres-pooler", "warning postgres-listen")
	statement := testserver.PgBouncer(t, s, testserver.Config("pool_mode = statement"))
	finds(t, open(t, statement.URL()).Backend, time.Minute, "warning postgres-pooler", "warning postgres-listen")
	session := testserver.PgBouncer(t, s, testserver.Config("pool_mode = session"))
	finds(t, open(t, session.URL()).Backend, time.Minute, "warning postgres-listen")

	db, _ := database(t, s.URL())
	finds(t, sqllock.New(db, sqllock.Postgres, nil), time.Minute, "note postgres-listen")
	db.SetMaxOpenConns(1)
	finds(t, sqllock.New(db, sqllock.Postgres, nil), time.Minute, "note postgres-listen", "note postgres-pooler")
}

// onFile opens a database that has a table of the program, and so keeps its journal mode.
func onFile(t *testing.T, path, pragmas string) driver.Backend {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&"+pragmas)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS own (x)")
	must(t, err)
	b := sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true})
	t.Cleanup(func() { _ = b.Close() })
	return b
}
