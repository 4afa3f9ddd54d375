package sql_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"
	_ "modernc.org/sqlite"             // the driver named "sqlite"

	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// The words that stand for others in statements: {key} is the column of the key, {name} the
// key as text, {now} the time of the database in microseconds, {alone} the condition that the
// row of a line keeps a claim, {ends} the column of the end of its lease, {session} the number of
// the session, {sessions} a query of the numbers of all other sessions in the database.

var sqlite = kind{
	name: "SQLite", dialect: sqllock.SQLite, driver: "sqlite", make: newFile,
	words: map[string]string{
		"{key}": "lock_key", "{name}": "CAST(lock_key AS TEXT)", "{now}": "(unixepoch('subsec') * 1000000)",
		"{ends}":     "expires",
		"{tables}":   "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
		"{liveswap}": "expires > {now}",
	},
}

var postgres = kind{
	name: "Postgres", dialect: sqllock.Postgres, driver: "pgx", server: sharedPostgres, make: newPostgres,
	words: map[string]string{
		"{key}": "lock_key", "{name}": "convert_from(lock_key, 'UTF8')",
		"{now}":  "(extract(epoch FROM clock_timestamp()) * 1000000)",
		"{ends}": "expires", "{session}": "pg_backend_pid()",
		"{connections}": "SELECT count(*) FROM pg_stat_activity WHERE application_name <> 'pooler' AND datname =",
		"{sessions}": `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND application_name <> 'pooler'`,
		"{tables}": `SELECT relname FROM pg_class
			WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v', 'S', 'm', 'p')`,
		"{liveswap}": "expires > {now}",
	},
}

var pgBouncer = func() kind {
	k := postgres
	k.name, k.pooled, k.params = "PgBouncer", true, []string{"default_query_exec_mode=exec"}
	return k
}()

var mariaDB = kind{
	name: "MariaDB", dialect: sqllock.MySQL, driver: "mysql", server: sharedMariaDB, make: newMariaDB,
	words: map[string]string{
		"{key}": "lock_key", "{name}": "CAST(lock_key AS CHAR)",
		"{now}":  "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
		"{ends}": "expires", "{session}": "CONNECTION_ID()",
		"{connections}": "SELECT COUNT(*) FROM information_schema.processlist WHERE db =",
		"{sessions}":    "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
		"{tables}":      "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
		"{liveswap}":    "expires > {now}",
	},
}

var (
	barePath       = sqlite.with("BarePath", "%s")
	serializable   = postgres.with("Serializable", "default_transaction_isolation=serializable")
	repeatableRead = postgres.with("RepeatableRead", "default_transaction_isolation=repeatable read")
	readCommitted  = postgres.with("ReadCommitted", "default_transaction_isolation=read committed")
)

// newFile chooses a path for a database that does not exist yet. A parameter is the DSN, with
// a place for the path.
func newFile(t testing.TB, s *store) {
	t.Helper()
	s.name = filepath.Join(t.TempDir(), "locks.db")
	s.direct = sqllock.SQLiteDSN(s.name)
	s.dsn = s.direct
	if len(s.params) > 0 {
		s.dsn = fmt.Sprintf(s.params[0], s.name)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(s.name); err != nil {
			return
		}
		s.tidy(t)
		// Whoever closes a database last takes its log away.
		if _, err := os.Stat(s.name + "-wal"); err == nil && !t.Failed() {
			t.Errorf("somebody still has %s open", s.name)
		}
	})
}

func newPostgres(t testing.TB, s *store) {
	t.Helper()
	s.create(t, s.on.URL(), "DROP DATABASE %s WITH (FORCE)")
	s.direct = pgURL(t, s.on.URL(), s.name)
	s.dsn = pgURL(t, s.direct, "", s.params...)
	if s.pooled {
		s.behind(t, testserver.PgBouncer(t, s.on))
	}
}

// behind has programs go through a PgBouncer.
func (s *store) behind(t testing.TB, front *testserver.Server) {
	t.Helper()
	s.dsn = pgURL(t, front.URL(), s.name, s.params...)
}

// pgURL returns a URL with another database, unless it is "", and more parameters.
func pgURL(t testing.TB, raw, database string, params ...string) string {
	t.Helper()
	u, err := url.Parse(raw)
	must(t, err)
	if database != "" {
		u.Path = "/" + database
	}
	q := u.Query()
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		q.Set(name, value)
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String()
}

func newMariaDB(t testing.TB, s *store) {
	t.Helper()
	s.create(t, mariaDSN(s.on.Addr(), ""), "DROP DATABASE %s")
	s.direct = mariaDSN(s.on.Addr(), s.name)
	s.dsn = mariaDSN(s.on.Addr(), s.name, s.params...)
}

// mariaDSN names a database at an address, for root.
func mariaDSN(addr, database string, params ...string) string {
	return fmt.Sprintf("root@tcp(%s)/%s?%s", addr, database, strings.Join(params, "&"))
}

// onMySQL reports whether the server is MySQL, not MariaDB.
func onMySQL(t testing.TB, s *store) bool {
	t.Helper()
	return !strings.Contains(ask[string](t, s, "SELECT VERSION()"), "MariaDB")
}

// listenOn is the adapter that the documentation of Options.Listen shows.
func listenOn(url string) func(ctx context.Context, channel string, heard func()) error {
	return func(ctx context.Context, channel string, heard func()) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		for {
			heard()
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return err
			}
		}
	}
}
