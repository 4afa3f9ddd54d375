// Package fence_test holds the guards of package fence, and those of the backends'
// modules, to what they promise, on real databases and against holders that wake up
// late.
package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	mysql "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(writeLate)
	code := m.Run()
	testserver.StopShared(code != 0)
	os.Exit(code)
}

// stale must be ErrStale.
func stale(t testing.TB, what any, err error) {
	t.Helper()
	steps.Is(t, what, err, fence.ErrStale)
}

// staleError must be want, which says what the resource had seen.
func staleError(t testing.TB, err error, want fence.StaleError) {
	t.Helper()
	var got *fence.StaleError
	if !errors.Is(err, fence.ErrStale) || !errors.As(err, &got) || *got != want {
		t.Errorf("the answer is %v; want %v", err, &want)
	}
}

// database is one kind of database.
type database struct {
	name    string
	dialect fence.Dialect
	driver  string
	dsn     func(t testing.TB) string // of a database of the test's own
	levels  []sql.IsolationLevel
	numbers bool   // placeholders are $1, $2 …
	named   string // the name of the table of marks
}

var databases = []database{
	{"sqlite", fence.SQLite, "sqlite", newSQLite, []sql.IsolationLevel{sql.LevelDefault}, false, "main.marks"},
	{"postgres", fence.Postgres, "pgx", newPostgres, levels, true, "public.Marks_2"},
	{"mariadb", fence.MySQL, "mysql", newMariaDB, levels, false, "Marks_2"},
}

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// docTable takes the guarded writes: it has a column for the token, and one row.
var docTable = []string{
	`CREATE TABLE doc (id INT PRIMARY KEY, n BIGINT NOT NULL, token BIGINT NOT NULL, writes BIGINT NOT NULL)`,
	`INSERT INTO doc VALUES (1, 0, 0, 0)`,
}

// guarded is a new database with marks and a docTable.
type guarded struct {
	database
	*sql.DB
	table *fence.Table
	level sql.IsolationLevel
}

// each runs a test on every database and isolation level, all at the same time. Several
// processes may create the table of marks at once.
func each(t *testing.T, f func(t *testing.T, g guarded)) {
	for _, d := range databases {
		for _, level := range d.levels {
			t.Run(d.name+"/"+strings.ReplaceAll(level.String(), " ", ""), func(t *testing.T) {
				t.Parallel()
				g := guarded{d, d.open(t, docTable...), fence.NewTable(d.dialect, d.named), level}
				var creators sync.WaitGroup
				for range 4 {
					creators.Go(func() { steps.Well(t, "Create", g.table.Create(t.Context(), g.DB)) })
				}
				creators.Wait()
				f(t, g)
			})
		}
	}
}

func (g guarded) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := g.BeginTx(t.Context(), &sql.TxOptions{Isolation: g.level})
	steps.Must(t, err)
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// advance is a transaction of its own.
func (g guarded) advance(t *testing.T, resource string, token fence.Token) error {
	t.Helper()
	return g.marks().Do(t.Context(), resource, token, func(context.Context) error { return nil })
}

func (g guarded) marks() fence.Marks { return g.table.Marks(g.DB, &sql.TxOptions{Isolation: g.level}) }

// showToken is a statement that compares the token itself.
const showToken = `UPDATE doc SET token = ?, writes = writes + 1 WHERE id = 1 AND token <= ?`

// execer is a database or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// rows runs a statement that ends with a comparison of the token.
func (d database) rows(t *testing.T, x execer, statement string, args ...any) error {
	return fence.Rows(x.ExecContext(t.Context(), d.sql(statement), args...))
}

// open returns a pool on a new database.
func (d database) open(t testing.TB, statements ...string) *sql.DB {
	t.Helper()
	return d.openDSN(t, d.dsn(t), statements...)
}

func (d database) openDSN(t testing.TB, dsn string, statements ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, dsn)
	steps.Must(t, err)
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	t.Cleanup(func() { db.Close() })
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return db
}

// sql writes placeholders as the database wants them.
func (d database) sql(text string) string {
	if !d.numbers {
		return text
	}
	var b strings.Builder
	n := 0
	for _, r := range text {
		if r == '?' {
			n++
			fmt.Fprintf(&b, "$%d", n)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// again reports whether err is how a database says that two transactions could not
// be put in order: the one that gets it is to be run again.
func again(err error) bool {
	var p *pgconn.PgError
	var m *mysql.MySQLError
	var s *sqlite.Error
	switch {
	case errors.As(err, &p):
		return p.Code == "40001" || p.Code == "40P01" // serialization failure, deadlock
	case errors.As(err, &m):
		return m.Number == 1213 || m.Number == 1205 || m.Number == 1020 // deadlock, lock wait, changed since it was read
	case errors.As(err, &s):
		return s.Code()&0xff == sqlite3.SQLITE_BUSY
	}
	return false
}

func newSQLite(t testing.TB) string {
	return "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "data.db")) +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(20000)"
}

// The servers that all tests share.
var (
	sharedPostgres  = testserver.Shared(testserver.StartPostgres)
	sharedMariaDB   = testserver.Shared(testserver.StartMariaDB)
	sharedEtcd      = testserver.Shared(testserver.StartEtcd)
	sharedZooKeeper = testserver.Shared(testserver.StartZooKeeper)
)

func newPostgres(t testing.TB) string {
	t.Helper()
	s := sharedPostgres(t)
	return newDatabase(t, "pgx", s.URL(), s.URL(), func(u *url.URL) string { return u.String() })
}

func newMariaDB(t testing.TB) string {
	t.Helper()
	s := sharedMariaDB(t)
	dsn := func(u *url.URL) string {
		c := mysql.NewConfig()
		c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
		c.Passwd, _ = u.User.Password()
		return c.FormatDSN()
	}
	u, err := url.Parse(s.URL())
	steps.Must(t, err)
	return newDatabase(t, "mysql", dsn(u), s.URL(), dsn)
}

// made counts the databases of tests.
var made atomic.Int64

// newDatabase makes a database of the test's own on a server, and returns its DSN.
func newDatabase(t testing.TB, driver, admin, address string, dsn func(*url.URL) string) string {
	t.Helper()
	db, err := sql.Open(driver, admin)
	steps.Must(t, err)
	defer db.Close()
	name := fmt.Sprint("test", made.Add(1))
	steps.Must(t, steps.ErrOf(db.ExecContext(t.Context(), "CREATE DATABASE "+name)))
	u, err := url.Parse(address)
	steps.Must(t, err)
	u.Path = "/" + name
	return dsn(u)
}
