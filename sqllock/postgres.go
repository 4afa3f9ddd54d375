package sqllock

import (
	"context"
	"strings"

	_ "embed"

	"github.com/fencelock/fencelock/internal/swapsql"
)

//go:embed schemas.sql
var postgresSchemas string

var postgres = dialect{
	Dialect: swapsql.Postgres, conns: newPool, examine: examinePostgres,
	schemas: withoutComments(postgresSchemas),
	// create runs the schema as a text without arguments, which goes out in one piece, so no
	// pooler takes it apart.
	create: func(ctx context.Context, c *config, schema string) error {
		return c.runSchema(ctx, strings.NewReplacer("\nBEGIN;\n", "\n", "\nCOMMIT;\n", "\n").Replace(schema))
	},
	missing: []string{"42P01"},
	// A read-only transaction, or one during recovery; no lock on a table, or no unlogged table,
	// during recovery.
	moved: []string{"25006", "55000", "0A000"},
	gone:  []string{"08", "57P", "58"}, // the connection, the server, its machine; also from poolers
	advice: []advice{
		// No memory, no room on the disk, no connection left, and a server that starts, ends or recovers.
		{verdict: refused, codes: "53000 53100 53200 53300 53400 57P03"},
		// PgBouncer has no server for the statement.
		{verdict: refused, texts: []string{"no more connections allowed", "query_wait_timeout",
			"server login has been failing", "server login failed"}},
		{verdict: lasting, codes: "42P01 42703 3F000", text: "the tables of fencelock are missing: set " +
			"Options.CreateTables, or run what fencelock schema postgres prints, in the schema that comes first in " +
			"the search_path"},
		{verdict: lasting, codes: "42P06", text: "a database has one set of tables: run this as a role whose " +
			"search_path begins with the schema of that set"},
		{verdict: lasting, codes: "42501", text: "the role lacks a right: GRANT SELECT, INSERT, UPDATE, DELETE on " +
			"the tables fencelock_*, or run what fencelock schema postgres prints as a role that may create tables"},
		{verdict: lasting, codes: "28P01 28000", text: "the server does not let us in: check user, password and " +
			"pg_hba.conf"},
		{verdict: lasting, codes: "3D000", text: "there is no such database: create it, or correct the URL"},
		{verdict: lasting, codes: "26000 42P05", text: "a pooler mixes up prepared statements: open the database " +
			"with default_query_exec_mode=exec (pgx) or binary_parameters=yes (lib/pq)"},
		{verdict: lasting, codes: "22003 23514", text: "the rows of the lock are damaged: delete its rows from all " +
			"tables fencelock_*, then try again"},
		{verdict: lasting, codes: "FL012", text: "this server is too old: PostgreSQL 12 or later is needed"},
	},
}
