package sqllock

import (
	"context"
	"embed"
	"encoding/hex"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

//go:embed query/postgres/*.sql
var postgresQueries embed.FS

// postgres is the engine for PostgreSQL.
type postgres struct {
	config

	mu       sync.Mutex
	listener *subscriber // the last one
}

func openPostgres(c config) *steps {
	s := newServer(c, &postgres{config: c}, &postgresErrors)
	s.store = newBatching(s.store.(*server))
	return s
}

// statement calls a function of the schema, or is a statement of query/postgres.
func (p *postgres) statement(step string, args []any) (text string, params []any) {
	if query, err := postgresQueries.ReadFile("query/postgres/" + step + ".sql"); err == nil {
		return p.names.statement(string(query)), args
	}
	places := make([]string, len(args))
	for i, arg := range args {
		places[i] = "$" + strconv.Itoa(i+1) + map[reflect.Kind]string{
			reflect.Slice: "::bytea", reflect.Int64: "::bigint", reflect.Bool: "::boolean", reflect.String: "::text",
		}[reflect.TypeOf(arg).Kind()]
	}
	return "SELECT * FROM " + p.names.prefix + step + "(" + strings.Join(places, ", ") + ")", args
}

// createTables runs the schema as a text without arguments, which goes out in one piece, so no
// pooler takes it apart.
func (p *postgres) createTables(ctx context.Context) error {
	return p.runSchema(ctx, strings.NewReplacer("\nBEGIN;\n", "\n", "\nCOMMIT;\n", "\n").Replace(postgresSchema))
}

func (p *postgres) prepare() string { return "" }

func (p *postgres) schemas() string {
	text, _ := p.statement("schemas", nil)
	return text
}

func (p *postgres) hold(key, id string) (text string, params []any) {
	return p.statement("hold", []any{[]byte(key), []byte(id)})
}

func (p *postgres) endsConnections(context.Context, error) string { return "" }

// cluster: PostgreSQL itself has one primary.
func (p *postgres) cluster(context.Context) (string, error) { return "", nil }

func (p *postgres) renewAtOnce() int { return 1000 }

func (p *postgres) leases(ts []driver.Ticket) []any {
	return []any{
		texts(ts, func(t driver.Ticket) string { return t.Key }),
		numbers(ts, func(t driver.Ticket) int64 { return t.Token }),
		texts(ts, func(t driver.Ticket) string { return t.ID }),
		numbers(ts, func(t driver.Ticket) int64 { return clampTTL(t.TTL).Microseconds() }),
	}
}

// texts writes an array of bytes, in hexadecimal, and numbers one of numbers, as a text that every
// driver can send.
func texts[T any](all []T, of func(T) string) string {
	return array(all, func(one T) string { return `"` + hex.EncodeToString([]byte(of(one))) + `"` })
}

func numbers[T any](all []T, of func(T) int64) string {
	return array(all, func(one T) string { return strconv.FormatInt(of(one), 10) })
}

func array[T any](all []T, element func(T) string) string {
	elements := make([]string, len(all))
	for i, one := range all {
		elements[i] = element(one)
	}
	return "{" + strings.Join(elements, ",") + "}"
}

// sqlState returns the SQLSTATE of a driver's error, or "". No driver is imported for it:
// the errors of pgx and of lib/pq have this method.
func sqlState(err error) string {
	var s interface{ SQLState() string }
	if errors.As(err, &s) {
		return s.SQLState()
	}
	return ""
}

var postgresErrors = serverErrors{
	code:    sqlState,
	missing: []string{"42P01", "42883"},          // a table, a function
	undone:  []string{"40001", "40P01", "55P03"}, // not serializable, a deadlock, the role's lock_timeout
	// A read-only transaction, or one during recovery; no lock on a table, or no unlogged table,
	// during recovery.
	moved: []string{"25006", "55000", "0A000"},
	// No memory, no room on the disk, no connection left, and a server that starts, ends or recovers.
	refused: []string{"53000", "53100", "53200", "53300", "53400", "57P03"},
	// PgBouncer has no server for the statement.
	pooler: []string{"no more connections allowed", "query_wait_timeout", "server login has been failing",
		"server login failed"},
	gone: []string{"08", "57P", "58"}, // the connection, the server, its machine; also from poolers
	advice: []advice{
		{"42P01 42883 42703 3F000", "the tables or functions of fencelock are missing: set Options.CreateTables, " +
			"or run what fencelock schema postgres prints, in the schema that comes first in the search_path"},
		{"42P06", "a database has one set of tables: run this as a role whose search_path begins with the schema of " +
			"that set"},
		{"42501", "the role lacks a right: GRANT SELECT, INSERT, UPDATE, DELETE on the tables fencelock_*, or " +
			"run what fencelock schema postgres prints as a role that may create tables"},
		{"28P01 28000", "the server does not let us in: check user, password and pg_hba.conf"},
		{"3D000", "there is no such database: create it, or correct the URL"},
		{"26000 42P05", "a pooler mixes up prepared statements: open the database with default_query_exec_mode=exec " +
			"(pgx) or binary_parameters=yes (lib/pq)"},
		{"22003 23514", "the rows of the lock are damaged: delete its rows from all tables fencelock_*, then try " +
			"again"},
		{"FL012", "this server is too old: PostgreSQL 12 or later is needed"},
	},
}
