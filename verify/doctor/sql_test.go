package doctor_test

import (
	"database/sql"
	"path/filepath"
	"strings"
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

func TestPostgres(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t, testserver.Config("fsync = on", "idle_in_transaction_session_timeout = '10min'",
		"wal_level = replica", "max_wal_senders = 4"))
	finds(t, open(t, s.URL()).Backend, time.Minute)

	db, run := database(t, s.URL())
	run("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET idle_in_transaction_session_timeout = 0", "SELECT pg_reload_conf()",
		"ALTER ROLE postgres SET synchronous_commit = off", "ALTER ROLE postgres SET statement_timeout = '5s'",
		"ALTER ROLE postgres SET default_transaction_isolation = 'serializable'")
	standby := testserver.PostgresStandby(t, s, s.Addr(),
		testserver.Config("fsync = on", "idle_in_transaction_session_timeout = '10min'"))
	until(t, "the standby is connected", func() bool {
		var n int
		return db.QueryRow("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").Scan(&n) == nil && n == 1
	})
	b := open(t, s.URL()).Backend
	finds(t, b, time.Minute, "error postgres-fsync", "warning postgres-synchronous-commit", "note postgres-isolation",
		"note postgres-idle-in-transaction", "warning postgres-statement-timeout", "warning postgres-async-standby")

	// What a lease of 50 s allows is too short for one of a minute.
	run("ALTER SYSTEM RESET fsync", "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()",
		"ALTER ROLE postgres RESET ALL", "ALTER ROLE postgres SET statement_timeout = '5s'")
	finds(t, open(t, s.URL()).Backend, 50*time.Second, "note postgres-idle-in-transaction")

	run("ALTER ROLE postgres RESET ALL", "ALTER ROLE postgres SET default_transaction_read_only = on")
	finds(t, open(t, s.URL()).Backend, time.Minute, "note postgres-idle-in-transaction", "error postgres-read-only",
		"error lock-refused")
	finds(t, open(t, standby.URL()).Backend, time.Minute, "error postgres-standby", "error lock-refused")

	run("ALTER ROLE postgres RESET ALL", "ALTER SYSTEM SET idle_in_transaction_session_timeout = '10min'",
		"SELECT pg_reload_conf()")
	split := testserver.SplitReads(t, s, standby, func(statement string) bool {
		return strings.HasPrefix(statement, "SELECT CASE WHEN current_setting(")
	})
	finds(t, open(t, strings.Replace(s.URL(), s.Addr(), split.Addr(), 1)).Backend, time.Minute,
		"warning postgres-read-splitting", "warning postgres-listen")

	run("CREATE SCHEMA other", "CREATE TABLE other.fencelock_line ()")
	finds(t, open(t, s.URL()).Backend, time.Minute, "error postgres-schemas", "error lock-refused")
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

func TestMariaDB(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t, testserver.Config("log-bin=log"))
	_, run := database(t, s.URL())
	run("SET GLOBAL innodb_flush_log_at_trx_commit = 1", "SET GLOBAL sync_binlog = 1")
	finds(t, open(t, s.URL()).Backend, time.Minute)
	finds(t, open(t, s.URL()).Backend, 49*time.Second, "note mysql-lock-wait")

	run("SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL sync_binlog = 0", "SET GLOBAL wait_timeout = 19",
		"SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET GLOBAL innodb_lock_wait_timeout = 0")
	finds(t, open(t, s.URL()).Backend, time.Minute, "warning mysql-flush-log", "warning mysql-sync-binlog",
		"warning mysql-wait-timeout", "warning mysql-lock-wait", "note mysql-isolation")
	run("SET GLOBAL read_only = ON", "SET GLOBAL innodb_lock_wait_timeout = 10")
	finds(t, open(t, s.URL()).Backend, 57*time.Second, "warning mysql-flush-log", "warning mysql-sync-binlog",
		"note mysql-isolation", "error mysql-read-only")
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.db")
	finds(t, open(t, "sqlite://"+path).Backend, time.Minute)

	for journal, want := range map[string]string{"DELETE": "note sqlite-journal", "OFF": "error sqlite-journal", "MEMORY": "error sqlite-journal"} {
		b := onFile(t, filepath.Join(t.TempDir(), "locks.db"), "_pragma=journal_mode("+journal+")&_pragma=synchronous(OFF)")
		finds(t, b, time.Minute, want, "warning sqlite-synchronous")
	}
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
