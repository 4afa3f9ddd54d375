package sqllock

import (
	"context"
	"strings"

	_ "embed"

	"github.com/fencelock/fencelock/sqllock/internal/reply"
)

//go:embed schemas.sql
var postgresSchemas string

var postgres = dialect{
	Table: reply.Postgres.With(postgresAdvice...), conns: newPool, examine: examinePostgres,
	schemas: withoutComments(postgresSchemas),
	// create runs the schema as a text without arguments, which goes out in one piece, so no
	// pooler takes it apart.
	create: func(ctx context.Context, c *config, schema string) error {
		return c.runSchema(ctx, strings.NewReplacer("\nBEGIN;\n", "\n", "\nCOMMIT;\n", "\n").Replace(schema))
	},
	missing: []string{"42P01"},
	gone:    []string{"08", "57P", "58"}, // the connection, the server, its machine; also from poolers
}

var postgresAdvice = []reply.Advice{
	{Verdict: reply.Lasting, Codes: "42P01 42703 3F000", Text: "the tables of fencelock are missing: set " +
		"Options.CreateTables, or run what fencelock schema postgres prints, in the schema that comes first in " +
		"the search_path"},
	{Verdict: reply.Lasting, Codes: "42P06", Text: "a database has one set of tables: run this as a role whose " +
		"search_path begins with the schema of that set"},
	{Verdict: reply.Lasting, Codes: "42501", Text: "the role lacks a right: GRANT SELECT, INSERT, UPDATE, DELETE on " +
		"the tables fencelock_*, or run what fencelock schema postgres prints as a role that may create tables"},
	{Verdict: reply.Lasting, Codes: "22003 23514", Text: "the rows of the lock are damaged: delete its rows from all " +
		"tables fencelock_*, then try again"},
	{Verdict: reply.Lasting, Codes: "FL012", Text: "this server is too old: PostgreSQL 12 or later is needed"},
}
