package fence

import (
	"context"
	"embed"
	"regexp"
	"strings"
)

// Dialect is the kind of database that a [Table] is in.
type Dialect int

// The dialects. The zero Dialect is invalid.
const (
	_ Dialect = iota
	// SQLite is SQLite 3.35 or later.
	SQLite
	// Postgres is PostgreSQL 9.5 or later.
	Postgres
	// MySQL is MySQL 5.7 or later, or MariaDB 10.2 or later.
	MySQL
)

// String returns the name of the dialect in lower case, as in a URL.
func (d Dialect) String() string {
	if k, ok := dialects[d]; ok {
		return k.name
	}
	return "no dialect"
}

// dialect holds what differs between databases.
type dialect struct {
	name, schema string
	raise, seen  string // statements; seen is empty where raise answers the mark
}

//go:embed schema/*.sql query/*.sql
var files embed.FS

var dialects = map[Dialect]dialect{
	SQLite:   {"sqlite", file("schema/sqlite.sql"), file("query/raise_sqlite.sql"), ""},
	Postgres: {"postgres", file("schema/postgres.sql"), file("query/raise_postgres.sql"), ""},
	MySQL:    {"mysql", file("schema/mysql.sql"), file("query/raise_mysql.sql"), file("query/seen_mysql.sql")},
}

// raise makes token the mark of resource unless the mark is larger, keeps the row
// locked until the transaction ends, and returns the mark as it is then.
func (t *Table) raise(ctx context.Context, tx Tx, resource []byte, token Token) (seen Token, err error) {
	if t.d.seen == "" { // INSERT … RETURNING does it in one step
		err = tx.QueryRowContext(ctx, t.sql(t.d.raise), resource, token).Scan(&seen)
		return seen, err
	}
	if _, err := tx.ExecContext(ctx, t.sql(t.d.raise), resource, token, token); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, t.sql(t.d.seen), resource).Scan(&seen)
	return seen, err
}

func file(name string) string {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// defaultTable is the name of the table in the embedded SQL.
const defaultTable = "fencelock_marks"

// sql puts the table's name into embedded SQL.
func (t *Table) sql(text string) string { return strings.ReplaceAll(text, defaultTable, t.name) }

// tableName matches a name that every database accepts without quotes, with or without
// the name of a schema before it. It goes into the text of statements.
var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)
