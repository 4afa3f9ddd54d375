package sqllock

import (
	"context"
	"strings"

	_ "embed"

	"github.com/fencelock/fencelock/internal/swapsql"
)

//go:embed schemas.sql
var postgresSchemas string

// postgres makes and finds the tables on PostgreSQL.
type postgres struct{ config }

func openPostgres(c config) conns { return newPool(c, &postgres{c}, &postgresErrors) }

// create runs the schema as a text without arguments, which goes out in one piece, so no
// pooler takes it apart.
func (p *postgres) create(ctx context.Context, schema string) error {
	return p.runSchema(ctx, strings.NewReplacer("\nBEGIN;\n", "\n", "\nCOMMIT;\n", "\n").Replace(schema))
}

// cluster: PostgreSQL itself has one primary.
func (p *postgres) cluster(context.Context) (string, error) { return "", nil }

func (p *postgres) schemas() string { return p.names.statement(postgresSchemas) }

var postgresErrors = serverErrors{
	Dialect: swapsql.Postgres,
	missing: []string{"42P01"},
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
		{"42P01 42703 3F000", "the tables of fencelock are missing: set Options.CreateTables, " +
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
