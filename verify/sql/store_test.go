package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// kind is a kind of database, and a way to it.
type kind struct {
	name    string // of the subtests
	dialect sqllock.Dialect
	driver  string   // of database/sql
	params  []string // of the DSN of programs
	words   map[string]string
	server  func(testserver.TB) *testserver.Server // the one that tests share
	make    func(t testing.TB, s *store)
	pooled  bool // behind PgBouncer, where nobody can listen
	rare    bool // a way to a database that only make verify takes
}

var (
	all       = []kind{sqlite, postgres, mariaDB}
	onServers = []kind{postgres, mariaDB}
	everyWay  = []kind{sqlite, postgres, pgBouncer, mariaDB}
)

// rarely returns kinds on which only make verify runs a test: other ways to a database that the test has
// another way to.
func rarely(kinds ...kind) []kind {
	for i := range kinds {
		kinds[i].rare = true
	}
	return kinds
}

// with returns a kind whose programs have other DSNs.
func (k kind) with(name string, params ...string) kind {
	k.name += "/" + name
	k.params = append(slices.Clone(k.params), params...)
	return k
}

// store is a database of a test's own.
type store struct {
	kind
	on     *testserver.Server
	name   string  // of the database; of a file its path
	dsn    string  // of programs
	direct string  // past poolers, for the test itself
	db     *sql.DB // at direct
}

// each runs a test on a database of each kind, all at the same time.
func each(t *testing.T, kinds []kind, f func(t *testing.T, s *store)) {
	t.Helper()
	t.Parallel()
	for _, k := range kinds {
		if k.rare && !verifying {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			f(t, k.store(t))
		})
	}
}

// only runs a test on the one kind of database that it is about.
func only(t *testing.T, k kind, f func(t *testing.T, s *store)) {
	t.Helper()
	each(t, []kind{k}, f)
}

// polled runs a test with a Backend that nobody tells anything. At the end nobody may be in line.
func polled(t *testing.T, kinds []kind, f func(t *testing.T, s *store, b *sqllock.Backend)) {
	t.Helper()
	each(t, kinds, func(t *testing.T, s *store) {
		b := s.polling(t)
		f(t, s, b)
		empty(t, b)
	})
}

// store makes a database. At the end of the test nobody may be connected to it, and no
// claim live in it.
func (k kind) store(t testing.TB) *store {
	t.Helper()
	var on *testserver.Server
	if k.server != nil {
		on = k.server(t)
	}
	return k.storeOn(t, on)
}

func (k kind) storeOn(t testing.TB, on *testserver.Server) *store {
	t.Helper()
	s := &store{kind: k, on: on}
	k.make(t, s)
	s.db = s.openDSN(t, s.direct)
	return s
}

var databases atomic.Int64

// create makes a database on the server, and drops it at the end. s.dsn and s.direct lead to
// the server before, and to the database afterwards.
func (s *store) create(t testing.TB, admin string, drop string) {
	t.Helper()
	s.name = fmt.Sprintf("test%d", databases.Add(1))
	server, err := sql.Open(s.driver, admin)
	must(t, err)
	must(t, second(server.ExecContext(soon(t), "CREATE DATABASE "+s.name)))
	t.Cleanup(func() {
		defer server.Close()
		if s.on.Pid() == 0 {
			return // the test has ended it
		}
		until(t, "everybody has closed their connections", func() bool {
			var n int
			err := server.QueryRow(s.words["{connections}"] + " '" + s.name + "'").Scan(&n)
			return err == nil && n == 0
		})
		s.tidy(t)
		steps.OK(t, second(server.Exec(fmt.Sprintf(drop, s.name))))
	})
}

var ours = regexp.MustCompile(`^(?i:fencelock|app)_.*`)

// tidy looks at what a test has left: tables of ours, and no live claim.
func (s *store) tidy(t testing.TB) {
	t.Helper()
	if t.Failed() {
		return
	}
	db, err := sql.Open(s.driver, s.direct)
	must(t, err)
	defer db.Close()
	for _, table := range column[string](t, db, s.sql("{tables}")) {
		if !ours.MatchString(table) {
			t.Errorf("the table %s is left in the database", table)
		}
		live := s.words["{live"+table[strings.LastIndexByte(table, '_')+1:]+"}"]
		if live == "" {
			continue
		}
		var n int
		if err := db.QueryRow(s.sql("SELECT count(*) FROM " + table + " WHERE " + live)).Scan(&n); err != nil || n > 0 {
			t.Errorf("%d claims are left in %s, %v", n, table, err)
		}
	}
}

// sql puts the words of the dialect into a statement, and numbers its arguments.
func (s *store) sql(text string) string {
	for range 2 { // {live…} has {now} in it
		for word, means := range s.words {
			text = strings.ReplaceAll(text, word, means)
		}
	}
	if s.dialect != sqllock.Postgres {
		return text
	}
	parts := strings.Split(text, "?")
	for i := range parts[1:] {
		parts[i] += fmt.Sprintf("$%d", i+1)
	}
	return strings.Join(parts, "")
}

// openDSN opens a pool that ends with the test. It is bounded, as every pool on a server
// should be.
func (s *store) openDSN(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.driver, dsn)
	must(t, err)
	if s.on != nil {
		db.SetMaxOpenConns(8)
		db.SetMaxIdleConns(8)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// open opens a pool as programs do.
func (s *store) open(t testing.TB) *sql.DB {
	t.Helper()
	return s.openDSN(t, s.dsn)
}

// one opens a pool of one connection.
func (s *store) one(t testing.TB) *sql.DB {
	t.Helper()
	db := s.open(t)
	db.SetMaxOpenConns(1)
	return db
}

// backendOn returns a Backend on a pool, with tables, that asks again and again while it
// waits, and ends with the test.
func (s *store) backendOn(t testing.TB, db *sql.DB) *sqllock.Backend {
	t.Helper()
	return s.new(t, db, &sqllock.Options{CreateTables: true})
}

func (s *store) new(t testing.TB, db *sql.DB, o *sqllock.Options) *sqllock.Backend {
	t.Helper()
	b := sqllock.New(db, s.dialect, o)
	t.Cleanup(func() { b.Close() })
	return b
}

// polling returns a Backend with a pool of its own that nobody tells anything.
func (s *store) polling(t testing.TB) *sqllock.Backend {
	t.Helper()
	return s.backendOn(t, s.open(t))
}

// backend returns a Backend as a process has it: with a pool of its own, and woken by
// whatever its database has for that.
func (s *store) backend(t testing.TB) *sqllock.Backend {
	t.Helper()
	return s.new(t, s.open(t), options(s.dialect, s.pooled, s.dsn))
}

// options are those of a process.
func options(d sqllock.Dialect, pooled bool, dsn string) *sqllock.Options {
	o := &sqllock.Options{CreateTables: true}
	if d == sqllock.Postgres && !pooled {
		o.Listen = listenOn(dsn)
	}
	return o
}

// do runs a statement past poolers.
func (s *store) do(t testing.TB, text string, args ...any) {
	t.Helper()
	run(t, s.db, s.sql(text), args...)
}

// ask returns the one value that a query answers.
func ask[T any](t testing.TB, s *store, query string, args ...any) (v T) {
	t.Helper()
	if err := s.db.QueryRowContext(soon(t), s.sql(query), args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func run(t testing.TB, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(soon(t), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// column returns the values of a query with one column.
func column[T any](t testing.TB, db *sql.DB, query string) (all []T) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var v T
		must(t, rows.Scan(&v))
		all = append(all, v)
	}
	must(t, rows.Err())
	return all
}
